"""The names that ``dir()`` lists and the signatures that ``help()`` prints.

Annotations of arrays are unions of jaxtyping classes, whose names fill a page. Public
functions and classes therefore have signatures that show annotations as the source has
them, and lists of names in place of the aliases of :mod:`icltheory._names`. The source
is read when a signature is printed, not on import. ``typing.get_type_hints`` and
type checkers see the annotations themselves.
"""

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

_GENERATED = "__init__", "__new__"


def shown(name: str) -> Callable[[], list[str]]:
    """Returns a module's ``__dir__``, and makes its public signatures readable."""
    module = sys.modules[name]
    for symbol in module.__all__:
        value = getattr(module, symbol)
        if not getattr(value, "__module__", "").startswith("icltheory."):
            continue
        if inspect.isfunction(value):
            _make_readable(value, inspect.unwrap(value))
        elif inspect.isclass(value):
            _make_class_readable(value)
    return lambda: sorted(module.__all__)


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
        texts = _texts(self.source)
        return texts.get(self.name) or inspect.formatannotation(self.kind)


def _make_class_readable(cls):
    for name, member in list(vars(cls).items()):
        function = getattr(member, "__func__", member)  # of a class or static method
        own = getattr(function, "__qualname__", "") == f"{cls.__qualname__}.{name}"
        if not inspect.isfunction(function) or not own:
            continue
        if name in _GENERATED and not _has_source(function):
            _make_readable(function, cls)
        elif not name.startswith("_") or name in _GENERATED or name == "__call__":
            _make_readable(function, inspect.unwrap(function))


def _make_readable(function, source):
    if "__signature__" not in vars(function):
        function.__signature__ = _Unread(function, source)


class _Unread(inspect.Signature):
    """A signature that is built when it is first accessed."""

    def __init__(self, function, source):
        self._function, self._source = function, source

    @functools.cached_property
    def _read(self):
        vars(self._function).pop("__signature__", None)
        signature = inspect.signature(self._function)
        parameters = [
            p.replace(annotation=self._written(p.annotation, name))
            for name, p in signature.parameters.items()
        ]
        returned = self._written(signature.return_annotation, "return")
        read = signature.replace(parameters=parameters, return_annotation=returned)
        self._function.__signature__ = read
        return read

    def _written(self, kind, name):
        plain = kind in (inspect.Signature.empty, None)
        return kind if plain else Written(kind, self._source, name)

    @property
    def parameters(self):
        return self._read.parameters

    @property
    def return_annotation(self):
        return self._read.return_annotation

    def replace(self, **changes):  # pyrefly: ignore[bad-override]
        return self._read.replace(**changes)

    def __reduce__(self):
        return self._read.__reduce__()


def _has_source(function):
    return not inspect.unwrap(function).__code__.co_filename.startswith("<")


@functools.cache
def _texts(source) -> dict[str, str]:
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
    """Returns the choices declared in ``_names.py`` for type checkers."""
    tree = ast.parse(Path(__file__).with_name("_names.py").read_text())
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            names = node.value.slice
            given = names.elts if isinstance(names, ast.Tuple) else [names]
            listed = " | ".join(map(ast.unparse, given))
            found[ast.unparse(node.targets[0])] = ast.parse(listed, mode="eval").body
    return found
