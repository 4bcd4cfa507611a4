"""Configuration of the documentation site."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]
# Notebooks import the library from this tree, and their figures are small.
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE)])
# Numbers on the pages are those of a CPU on every machine.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import icltheory  # noqa: E402

project = "icltheory"
author = "The icltheory authors"
copyright = f"2026, {author}"
version = release = icltheory.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_nb",
    "api_pages",
    "downloads",
    "root_pages",
    "errata",
    "experiment_cards",
    "fast_build",
    "players",
    "social_card",
    "stored_results",
]
exclude_patterns = ["OUT", "_build", "jupyter_execute"]

# Names of other libraries become links where their inventories can be fetched.
if os.environ.get("DOCS_LINK_OTHERS"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "jax": ("https://docs.jax.dev/en/latest", None),
        "flax": ("https://flax.readthedocs.io/en/latest", None),
        "equinox": ("https://docs.kidger.site/equinox", None),
    }

html_theme = "furo"
html_title = "icltheory"
html_baseurl = os.environ.get("DOCS_ADDRESS", "")
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(HERE / "_static" / "search_score.js")
html_js_files = [
    ("ledger.js", {"defer": "defer"}),
    ("explore.js", {"defer": "defer"}),
]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9"},
}

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

nb_execution_mode = "cache"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_image_options = {"align": "center"}

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the signature of the class shows them
napoleon_use_rtype = False
napoleon_custom_sections = [("References", "References")]
python_maximum_signature_line_length = 88
add_module_names = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"
