"""Keeps a build from scratch within five minutes on two cores.

Notebooks that changed run at the same time, before the pages are read. The navigation
of the pages that show source code, the same on all of them, is rendered once.
"""

import logging

from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor
from myst_nb.core.read import is_myst_markdown_notebook

READER = {"name": "myst_nb_md", "type": "plugin"}


def run_notebooks(app):
    """What fails here runs again when its page is read, and is reported there."""
    settings = app.env.mystnb_config
    cache = get_cache(settings.execution_cache_path)
    pages = (app.env.doc2path(name) for name in sorted(app.env.found_docs))
    notebooks = [
        str(page)
        for page in pages
        if page.suffix == ".md" and is_myst_markdown_notebook(page.read_text())
    ]
    for notebook in notebooks:
        cache.add_nb_to_project(notebook, read_data=READER)
    logger = logging.getLogger(__name__)
    logger.setLevel(logging.WARNING)
    executor = load_executor("local-parallel", cache, logger)
    executor.run_and_cache(filter_uris=notebooks, timeout=settings.execution_timeout)


def one_navigation():
    """A handler that gives the pages of source code the first one's navigation."""
    rendered = {}

    def reuse(app, pagename, template, context, doctree):
        if not pagename.startswith("_modules/"):
            return
        render, depth = context["toctree"], pagename.count("/")

        def toctree(**options):
            if depth not in rendered:
                rendered[depth] = render(**options)
            return rendered[depth]

        context["toctree"] = toctree

    return reuse


def setup(app):
    """Connects both to Sphinx."""
    app.connect("env-before-read-docs", lambda app, env, names: run_notebooks(app))
    app.connect("html-page-context", one_navigation(), priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
