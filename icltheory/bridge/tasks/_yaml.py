"""Reads YAML into dataclasses by their field types, with errors that name the line.

Only the text is parsed. No tag makes an object, and a scalar is the text as it stands
in the file where a field is a text, so that ``yes``, ``no`` and ``01`` are label words.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, NoReturn, Union, get_args, get_origin

import yaml

from icltheory.bridge.tasks.rows import text_of

_SCALARS = tuple(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp")
)
_STR, _INT, _, _, _NULL, _ = _SCALARS


class Complaint(ValueError):
    """An error that names the file and the line."""


class Document:
    """The one YAML document of a file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            root = yaml.compose(text_of(path), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f":{mark.line + 1}" if mark else ""
            what = error.problem or error.context
            raise Complaint(f"{path}{line}: expected YAML, got {what}") from None
        except yaml.YAMLError as error:
            what = str(error).splitlines()[0]
            raise Complaint(f"{path}: expected YAML, got {what}") from None
        if not isinstance(root, yaml.MappingNode):
            kind = "nothing" if root is None else _shown(root)
            raise Complaint(f"{path}: expected a mapping of fields, got {kind}")
        self.root = root

    def refuse(self, node: yaml.Node, message: str) -> NoReturn:
        """Raises an error with the file and the line of a node."""
        raise Complaint(f"{self.path}:{node.start_mark.line + 1}: {message}")

    def items(self, node: yaml.Node, name: str = "") -> dict[str, yaml.Node]:
        """Returns the entries of a mapping; raises for duplicate keys."""
        if not isinstance(node, yaml.MappingNode) or not node.tag.endswith("2002:map"):
            self.refuse(node, f"{name}: expected a mapping, got {_shown(node)}")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            text = self._text(key, f"a name in {name or 'the file'}")
            if text in found:
                self.refuse(key, f"{text}: expected one entry of this name, got two")
            # Errors name the line of the entry's key and not of its value.
            value.start_mark = key.start_mark
            found[text] = value
        return found

    def read(self, node: yaml.Node, kind: Any, name: str) -> Any:
        """Converts a node to a type built of records, lists and strings."""
        origin, parts = get_origin(kind), get_args(kind)
        if dataclasses.is_dataclass(kind):
            return self.record(node, self.items(node, name), kind, name)
        if origin in (Union, UnionType):
            fitting = (part for part in parts if _fits(node, part))
            return self.read(node, next(fitting, parts[0]), name)
        if origin is Mapping:
            return {
                key: self.read(value, parts[1], f"{name}.{key}")
                for key, value in self.items(node, name).items()
            }
        if origin is tuple and parts[1:] == (...,):
            return self._several(node, parts[0], name)
        if origin is tuple:
            given = self._list(node, name)
            if len(given) != len(parts):
                what = f"a pair ({', '.join(map(_words, parts))})"
                self.refuse(node, f"{name}: expected {what}, got {len(given)} entries")
            pairs = zip(given, parts, strict=True)
            return tuple(self.read(entry, part, name) for entry, part in pairs)
        if kind is int:
            return self._number(node, name)
        if kind is type(None):
            return None
        return self._text(node, name)

    def check_names(
        self, given: Mapping[str, yaml.Node], known: Sequence[str], front: str = ""
    ) -> None:
        """Raises if an entry of a mapping is not a field."""
        for name, node in given.items():
            if name not in known:
                listed = ", ".join(known)
                self.refuse(node, f"{front}{name}: expected a field among {listed}")

    def record(
        self,
        node: yaml.Node,
        given: Mapping[str, yaml.Node],
        kind: Any,
        name: str = "",
        ready: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Builds a record from a mapping's entries and from given values."""
        fields, front = dataclasses.fields(kind), f"{name}." if name else ""
        self.check_names(given, [field.name for field in fields], front)
        for field in fields:
            optional = {field.default, field.default_factory} != {dataclasses.MISSING}
            if not optional and field.name not in {*given, *ready}:
                self.refuse(node, f"{front}{field.name}: expected a value, got none")
        hints = typing.get_type_hints(kind)
        values = {
            key: self.read(value, hints[key], front + key)
            for key, value in given.items()
        }
        try:
            return kind(**ready, **values)
        except ValueError as error:
            field = str(error).partition(":")[0]
            self.refuse(given.get(field, node), str(error))

    def _several(self, node: yaml.Node, part: Any, name: str) -> tuple:
        """Reads a list; a list of pairs may be written as a mapping."""
        pair = get_args(part) if get_origin(part) is tuple else ()
        if isinstance(node, yaml.MappingNode) and len(pair) == 2 and pair[0] is str:
            entries = self.items(node, name).items()
            return tuple(
                (key, self.read(value, pair[1], f"{name}.{key}"))
                for key, value in entries
            )
        return tuple(self.read(entry, part, name) for entry in self._list(node, name))

    def _list(self, node: yaml.Node, name: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            self.refuse(node, f"{name}: expected a list, got {_shown(node)}")
        return node.value

    def _number(self, node: yaml.Node, name: str) -> int:
        try:
            return int(self._text(node, name))
        except ValueError:
            self.refuse(node, f"{name}: expected a whole number, got {_shown(node)}")

    def _text(self, node: yaml.Node, name: str) -> str:
        if node.tag not in _SCALARS or node.tag == _NULL:
            self.refuse(node, f"{name}: expected a text, got {_shown(node)}")
        return node.value


def _fits(node: yaml.Node, kind: Any) -> bool:
    """Whether a node has the shape of a type."""
    if kind is type(None):
        return node.tag == _NULL
    if kind is int:
        return node.tag == _INT
    if get_origin(kind) is tuple:
        return isinstance(node, yaml.SequenceNode)
    if get_origin(kind) is Mapping or dataclasses.is_dataclass(kind):
        return isinstance(node, yaml.MappingNode)
    return node.tag in _SCALARS and node.tag != _NULL


def _shown(node: yaml.Node) -> str:
    """Describes a node in words."""
    if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
        return "nothing" if node.tag == _NULL else repr(node.value[:60])
    if node.tag.startswith("tag:yaml.org,2002:"):
        return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
    return f"the tag {node.tag}"


def _words(kind: Any) -> str:
    return "text" if kind is str else "list"
