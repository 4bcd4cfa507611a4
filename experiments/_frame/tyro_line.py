"""Parses command lines by tyro, with error messages of one line."""

import contextlib
import dataclasses
import difflib
import io
import itertools
import re
from collections.abc import Sequence
from types import NoneType
from typing import Any, get_args

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
)

_REGISTRY = ConstructorRegistry()
_NUMBER = r": expected a number, got \1"


@_REGISTRY.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Makes the help page show an option of type ``X | None`` as type X."""
    kinds = [kind for kind in get_args(info.type) if kind is not NoneType]
    if NoneType not in get_args(info.type) or len(kinds) != 1:
        return None
    inner = ConstructorRegistry.get_primitive_spec(
        PrimitiveTypeInfo.make(kinds[0], info.markers)
    )
    if not isinstance(inner, PrimitiveConstructorSpec):
        return None
    return dataclasses.replace(
        inner,
        instance_from_str=lambda words: (
            None if words == ["None"] else inner.instance_from_str(words)
        ),
        is_instance=lambda value: value is None or inner.is_instance(value),
        str_from_instance=lambda value: (
            ["None"] if value is None else inner.str_from_instance(value)
        ),
    )


def read_line(
    default: Any,
    argv: Sequence[str] | None,
    kind: Any = None,
    *,
    name: str,
    about: str,
    **options: Any,
) -> Any:
    """Parses a dataclass from the words of a command line.

    Args:
        default: An instance with the defaults.
        argv: The words; those of the program unless given.
        kind: Type to read; that of the default unless given.
        name: Module below ``experiments`` that is run, for the help page.
        about: What it does, for the help page.
        **options: Further options of ``tyro.cli``.

    Returns:
        What ``tyro.cli`` returns.

    Raises:
        ValueError: if there is no such option, or a value cannot be read.
        SystemExit: once the help page is printed.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                type(default) if kind is None else kind,
                default=default,
                args=argv,
                prog=f"python -m experiments.{name}",
                description=about,
                registry=_REGISTRY,
                **options,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
    raise ValueError(one_line(complaint.getvalue()))


def one_line(complaint: str) -> str:
    """Shortens tyro's error message to one line with the closest valid option."""
    lines = [line.strip("│ \n") for line in complaint.splitlines()[1:]]
    body = itertools.takewhile(lambda line: not line.startswith("─"), lines)
    message = " ".join(body).removeprefix("Error parsing ")
    unknown = re.match(r"Unrecognized options: (\S+?),? ?(?=$| )", message)
    if unknown:
        message = f"{unknown[1].partition('=')[0]}: unknown option"
        names = re.findall(r"(--[\w.-]+)", complaint.partition("Perhaps you meant:")[2])
        nearest = difflib.get_close_matches(message.partition(":")[0], names, 1)
        message += f"; did you mean {nearest[0]}?" if nearest else " (see --help)"
    missing = re.match(r"Missing value for argument '(--[\w.-]+)", message)
    if missing:
        message = f"{missing[1]}: expected a value, got none"
    return re.sub(r": (?:invalid|could not convert) .*: '?(.*?)'?$", _NUMBER, message)
