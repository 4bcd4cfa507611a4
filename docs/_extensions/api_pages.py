"""Writes a page for each public module of the library, before the build reads pages.

Every public object is documented once, under its shortest public name; a page is
divided by the modules that define its objects. References to names of other libraries,
which annotations contain, are shown as text.
"""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Collection
from pathlib import Path
from typing import Any

from annotations import Written
from sphinx import addnodes
from sphinx.util.nodes import make_refnode

import icltheory

# Arguments that Flax adds to each of its modules.
_HIDDEN = ("parent", "name")
FOLDER = Path(__file__).parents[1] / "reference" / "api"


def public_modules() -> dict[str, types.ModuleType]:
    """All modules below the library whose name is public."""
    found = {}
    for module in pkgutil.walk_packages(icltheory.__path__, "icltheory."):
        if not any(part.startswith("_") for part in module.name.split(".")[1:]):
            found[module.name] = importlib.import_module(module.name)
    return found


def homes() -> dict[str, list[str]]:
    """For each module the names that are documented on its page."""
    found: dict[str, list[str]] = {}
    for module, symbol in dict.fromkeys(_documented().values()):
        found.setdefault(module, []).append(symbol)
    return found


@functools.cache
def _documented() -> dict[str, tuple[str, str]]:
    """For each path of a public name the module and the name of its documentation."""
    found, places = {}, {}
    modules = public_modules().values()
    for module in sorted(modules, key=lambda m: (m.__name__.count("."), m.__name__)):
        for symbol in getattr(module, "__all__", ()):
            value = getattr(module, symbol)
            if inspect.ismodule(value):
                continue
            # Two constants may be equal; functions and classes are themselves.
            key = (symbol, repr(value)) if _is_constant(value) else id(value)
            place = places.setdefault(key, (module.__name__, symbol))
            found[f"{module.__name__}.{symbol}"] = place
            if not _is_constant(value):
                found[f"{value.__module__}.{value.__qualname__}"] = place
    return found


def write_pages(app: Any) -> None:
    """Writes what changed and removes the pages of modules that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    modules, named = public_modules(), homes()
    pages = {
        f"{name}.rst": _page(modules[name], symbols) + _contents(name, named)
        for name, symbols in named.items()
    }
    pages["index.md"] = _index(sorted(named), modules)
    for old in FOLDER.iterdir():
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _page(module: types.ModuleType, symbols: list[str]) -> str:
    name = module.__name__
    title = name
    lines = [title, "=" * len(title), "", f".. automodule:: {name}", ""]
    groups: dict[str, list[str]] = {}
    for symbol in symbols:
        groups.setdefault(_public_home(name, symbol), []).append(symbol)
    for home in sorted(groups, key=lambda it: (it != name, it)):
        lines += _group(module, home, groups[home])
    return "\n".join(lines) + "\n"


def _public_home(name: str, symbol: str) -> str:
    """The module that defines a name, or that of the page if it is private."""
    value = getattr(importlib.import_module(name), symbol)
    home = getattr(value, "__module__", name)
    return home if _is_public(home) and not _is_constant(value) else name


def _is_public(module: str) -> bool:
    parts = module.split(".")
    return parts[0] == "icltheory" and not any(p.startswith("_") for p in parts)


def _is_constant(value: Any) -> bool:
    return not (inspect.isfunction(value) or inspect.isclass(value))


def _group(module: types.ModuleType, home: str, symbols: list[str]) -> list[str]:
    name, lines = module.__name__, []
    if home != name:
        first = (inspect.getdoc(importlib.import_module(home)) or "").split("\n")[0]
        title = first.rstrip(".") or home
        # Lets references to the module that defines these names be links.
        anchor = [f".. py:module:: {home}", ""] if _anchors()[home] == name else []
        lines += [*anchor, title, "-" * len(title), ""]
        lines += [f".. py:currentmodule:: {name}", ""]
    for symbol in symbols:
        value = getattr(module, symbol)
        if inspect.isclass(value):
            lines += [f".. autoclass:: {symbol}", "   :members:", ""]
        elif inspect.isfunction(value):
            lines += [f".. autofunction:: {symbol}", ""]
        else:
            lines += _constant(name, home, symbol)
    return lines


@functools.cache
def _anchors() -> dict[str, str]:
    """The page on which each defining module is announced."""
    own = {name: name for name in homes()}
    return {
        _public_home(name, s): name for name in homes() for s in homes()[name]
    } | own


def _constant(name: str, home: str, symbol: str) -> list[str]:
    """A constant or a type, with its source and the comment above it."""
    for module in (home, name, *public_modules()):
        source = inspect.getsource(importlib.import_module(module))
        for node in ast.parse(source).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            target = node.target if isinstance(node, ast.AnnAssign) else target
            if isinstance(target, ast.Name) and target.id == symbol and node.value:
                above = source.splitlines()[: node.lineno - 1]
                return _constant_entry(symbol, ast.unparse(node.value), above)
    raise ValueError(f"{name}.{symbol}: found no assignment")


def _constant_entry(symbol: str, value: str, above: list[str]) -> list[str]:
    comment: list[str] = []
    while above and above[-1].startswith("# "):
        comment.insert(0, above.pop()[2:])
    shown = [f"   :value: {value}"] if len(value) < 80 else []
    return [f".. py:data:: {symbol}", *shown, "", *(f"   {c}" for c in comment), ""]


def _index(names: list[str], modules: dict[str, types.ModuleType]) -> str:
    rows = []
    for name in names:
        text = inspect.getdoc(modules[name]) or ""
        package = importlib.import_module(".".join(name.split(".")[:2]))
        stable = "Stability: stable." in (package.__doc__ or "")
        promise = "stable" if stable else "provisional"
        about = text.splitlines()[0]
        rows.append(f"| [`{_short(name)}`]({name}.rst) | {about} | {promise} |")
    return "\n".join(
        [
            "# API",
            "",
            "Each public name is listed once, under its shortest path. A name of a",
            "*stable* package is removed or changed only after one minor version in",
            "which it warns; a *provisional* package may change in any minor version.",
            "",
            "| module of `icltheory` | contents | |",
            "|---|---|---|",
            *rows,
            "",
            "```{toctree}",
            ":hidden:",
            "",
            *(f"{_short(n)} <{n}>" for n in names if _parent(n, names) is None),
            "```",
            "",
        ]
    )


def _contents(name: str, named: Collection[str]) -> str:
    """The pages of the modules in a package."""
    below = sorted(one for one in named if _parent(one, named) == name)
    entries = "".join(f"   {_short(one)} <{one}>\n" for one in below)
    return f"\n.. toctree::\n   :hidden:\n\n{entries}" if below else ""


def _parent(name: str, named: Collection[str]) -> str | None:
    """The innermost package of a module that has a page."""
    parts = name.split(".")
    outer = [".".join(parts[:i]) for i in range(len(parts) - 1, 0, -1)]
    return next((one for one in outer if one in named), None)


def _short(name: str) -> str:
    return name.removeprefix("icltheory.")


def norms(app: Any, what: str, name: str, of: Any, options: Any, lines: list) -> None:
    """Keeps the bars of norms in plain text, which would begin a substitution."""
    math = None
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.lstrip().startswith(".. math::"):
            math = indent
        elif line.strip() and math is not None and indent <= math:
            math = None
        if math is None:
            parts = line.replace("||", "\N{DOUBLE VERTICAL LINE}").split("`")
            # What stands between backquotes is code or mathematics.
            parts[::2] = [re.sub(r"(?<!\\)\|", r"\\|", part) for part in parts[::2]]
            lines[i] = "`".join(parts)


def readable_signature(
    app: Any, what: str, name: str, of: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    """The signature with the annotations of the source."""
    if what not in ("function", "method", "class") or signature is None:
        return None
    try:
        found = inspect.signature(of)
    except (TypeError, ValueError):
        return None
    source = inspect.unwrap(of)
    empty = inspect.Parameter.empty
    own = [
        p
        if p.annotation is empty
        else p.replace(annotation=Written(p.annotation, source, p.name))
        for p in found.parameters.values()
        if p.name not in _HIDDEN
    ]
    if what == "method" and own and own[0].name in ("self", "cls"):
        own = own[1:]
    shown = found.replace(parameters=own, return_annotation=inspect.Signature.empty)
    result = found.return_annotation
    written = "" if result is empty else repr(Written(result, source, "return"))
    # A default without a literal, such as a function, has no place in a signature.
    text = re.sub(r"<(?:function|class|object) ?'?([\w.]*)[^>]*>", r"\1", str(shown))
    return text, "None" if result is None else written


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Links any public path of an object to its one page.

    Names in annotations that have no page are shown as text: those of other libraries
    and private ones. A name in a text that has no page stays an error.
    """
    if node.get("refdomain") != "py":
        return None
    target, module = node.get("reftarget", ""), node.get("py:module") or "icltheory"
    for path in (target, f"{module}.{target}", f"icltheory.{target}"):
        found = _place(path)
        if found is not None:
            document, anchor = found
            return make_refnode(
                app.builder, node["refdoc"], document, anchor, content, target
            )
    return None if node.get("refwarn") else content


def _place(path: str) -> tuple[str, str] | None:
    """Page and anchor of a name, or of a member of a class."""
    for pattern in (r"()$", r"(\.\w+)$"):
        member = re.search(pattern, path)
        place = member and _documented().get(path[: member.start()])
        if member and place:
            name, page = ".".join(place), f"reference/api/{place[0]}"
            owner = getattr(importlib.import_module(place[0]), place[1])
            # A field stands in the list below its class.
            field = member[1][1:] in getattr(owner, "__annotations__", ())
            return page, name if field else f"{name}{member[1]}"
    return None


def add_anchors(app: Any, doctree: Any) -> None:
    """Lets a page of source code name an object by any package above its module."""
    for signature in doctree.findall(addnodes.desc_signature):
        module = signature.get("module") or ""
        while signature["ids"] and "." in module:
            module = module.rpartition(".")[0]
            signature["ids"].append(f"{module}.{signature['fullname']}")


def drop_sources(app: Any, env: Any) -> None:
    """Removes modules without a page of source code from their index."""
    sources = env._viewcode_modules
    env._viewcode_modules = {name: entry for name, entry in sources.items() if entry}


def setup(app: Any) -> dict[str, Any]:
    """Connects to the build."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", norms)
    app.connect("autodoc-process-signature", readable_signature)
    app.connect("missing-reference", resolve)
    app.connect("doctree-read", add_anchors)
    app.connect("env-updated", drop_sources)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
