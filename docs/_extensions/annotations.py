"""Annotations as the source has them, for the signatures of the site.

Annotations of arrays are unions of jaxtyping classes, whose names fill a page. Aliases
of ``icltheory/_typing.py`` are shown as the list of names that they stand for.
"""

import ast
import functools
import inspect
import textwrap
from pathlib import Path
from typing import Any

import icltheory


class Written:
    """An annotation that prints as it is written in the source.

    Attributes:
        kind: The annotation.
        source: The function or class that has it.
        name: The argument, or ``"return"``.
    """

    def __init__(self, kind: Any, source: Any, name: str):
        self.kind, self.source, self.name = kind, source, name

    def __repr__(self) -> str:
        texts = texts_of(self.source)
        return texts.get(self.name) or inspect.formatannotation(self.kind)


@functools.cache
def texts_of(source) -> dict[str, str]:
    """Returns the annotations of a function or a class's fields as source text."""
    if inspect.isclass(source):
        classes = [c for c in reversed(source.__mro__) if c.__module__ != "builtins"]
        return {k: v for cls in classes for k, v in _in_source(cls).items()}
    return _in_source(source)


def _in_source(value):
    try:
        node: Any = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    except (OSError, TypeError, SyntaxError):  # no source, or not that of a definition
        return {}
    if isinstance(node, ast.ClassDef):
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        found = {ast.unparse(field.target): field.annotation for field in fields}
    elif isinstance(node, ast.FunctionDef):
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        given += filter(None, (node.args.vararg, node.args.kwarg))
        found = {one.arg: one.annotation for one in given} | {"return": node.returns}
    else:
        return {}
    return {name: _text(kind) for name, kind in found.items() if kind is not None}


def _text(annotation):
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value  # a forward reference
    return ast.unparse(_Readable().visit(annotation))


class _Readable(ast.NodeTransformer):
    """Replaces aliases by their choices, and removes marks for jaxtyping."""

    def visit_Name(self, node):
        return _choices().get(node.id, node)

    def visit_Subscript(self, node):
        self.generic_visit(node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        last = parts[-1] if len(parts) == 2 else None
        if isinstance(last, ast.Constant) and isinstance(last.value, str):
            axes = (axis.removeprefix("_") or "_" for axis in last.value.split())
            last.value = " ".join(axes)
        return node


@functools.cache
def _choices() -> dict[str, ast.expr]:
    """Returns the choices declared in ``_typing.py`` for type checkers."""
    tree = ast.parse(Path(icltheory.__file__).with_name("_typing.py").read_text())
    found = {}
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Literal":
            names = value.slice
            given = names.elts if isinstance(names, ast.Tuple) else [names]
            listed = " | ".join(map(ast.unparse, given))
            found[ast.unparse(node.targets[0])] = ast.parse(listed, mode="eval").body
    return found
