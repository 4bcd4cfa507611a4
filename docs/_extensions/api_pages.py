"""Writes a page for each public module of the library, before the build reads pages.

Every public object is documented once, under its shortest public name; a page is
divided by the modules that define its objects. References to names of other libraries,
which annotations contain, are shown as text.
"""

import importlib
import inspect
import pkgutil
import types
from pathlib import Path
from typing import Any

import icltheory

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
    paths: dict[Any, tuple[str, str]] = {}
    for module in sorted(public_modules().values(), key=lambda m: _length(m.__name__)):
        for symbol in module.__all__:
            value = getattr(module, symbol)
            if inspect.ismodule(value):
                continue
            # Constants may be equal and yet two, functions are themselves.
            own = inspect.isfunction(value) or inspect.isclass(value)
            key = id(value) if own else (symbol, repr(value))
            paths.setdefault(key, (module.__name__, symbol))
    found: dict[str, list[str]] = {}
    for module, symbol in paths.values():
        found.setdefault(module, []).append(symbol)
    return found


def _length(name: str) -> tuple[int, str]:
    return name.count("."), name


def write_pages(app: Any) -> None:
    """Writes what changed and removes the pages of modules that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    modules, named = public_modules(), homes()
    pages = {
        f"{name}.rst": _page(modules[name], symbols) for name, symbols in named.items()
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
        value = getattr(module, symbol)
        home = getattr(value, "__module__", name)
        shown = home if _is_public(home) and not _is_constant(value) else name
        groups.setdefault(shown, []).append(symbol)
    for home in sorted(groups, key=lambda it: (it != name, it)):
        lines += _group(module, home, groups[home])
    return "\n".join(lines) + "\n"


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
        lines += [f".. py:module:: {home}", "", title, "-" * len(title), ""]
        lines += [f".. py:currentmodule:: {name}", ""]
    for symbol in symbols:
        value = getattr(module, symbol)
        if inspect.isclass(value):
            lines += [f".. autoclass:: {symbol}", "   :members:", ""]
        elif inspect.isfunction(value):
            lines += [f".. autofunction:: {symbol}", ""]
        else:
            lines += [f".. autodata:: {symbol}", ""]
    return lines


def _index(names: list[str], modules: dict[str, types.ModuleType]) -> str:
    rows = []
    for name in names:
        text = inspect.getdoc(modules[name]) or ""
        package = importlib.import_module(".".join(name.split(".")[:2]))
        stable = "Stability: stable." in (package.__doc__ or "")
        promise = "stable" if stable else "provisional"
        rows.append(f"| [`{name}`]({name}) | {text.splitlines()[0]} | {promise} |")
    return "\n".join(
        [
            "# API",
            "",
            "Each public name stands here once, under its shortest path. A name of a",
            "*stable* package is removed or changed only after one minor version in",
            "which it warns; a *provisional* package may change in any minor version.",
            "",
            "| module | contents | |",
            "|---|---|---|",
            *rows,
            "",
            "```{toctree}",
            ":hidden:",
            "",
            *names,
            "```",
            "",
        ]
    )


def outside_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Shows a reference to another library's name as text, without a warning."""
    target = node.get("reftarget", "")
    foreign = node.get("refdomain") == "py" and not target.startswith("icltheory")
    annotation = node.get("reftype") in ("class", "obj", "data", "exc")
    return content if foreign and annotation and not node.get("refexplicit") else None


def setup(app: Any) -> dict[str, Any]:
    """Connects to the build."""
    app.connect("builder-inited", write_pages)
    app.connect("missing-reference", outside_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
