"""Prompt templates: format strings with two conversions that strip white space."""

import string
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["fill"]


def check_name(field: str) -> None:
    """Raises if a field of a template is an attribute or an index of another."""
    if "." in field or "[" in field:
        raise ValueError(f"the name of a field has no '.' or '[', got {field!r}")


def names_of(template: str) -> Iterator[str]:
    """Yields the names of a template's fields, with those inside of others' formats."""
    for _, name, inside, _ in string.Formatter().parse(template):
        if name is not None:
            yield name
        if inside:
            yield from names_of(inside)


class _Formatter(string.Formatter):
    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        check_name(field_name)
        return super().get_field(field_name, args, kwargs)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "t":
            return str(value).strip()
        if conversion == "e":
            return str(value).rstrip()
        return super().convert_field(value, conversion)


_FORMATTER = _Formatter()


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Fills a template from the fields of an example.

    Args:
        template: ``{text}`` is the field as it stands, ``{text!t}`` without white space
            at both ends, ``{text!e}`` without it at the end.
        fields: The fields.

    Returns:
        The text. Braces inside a field stay what they are.

    Example:
        >>> fill("text: {text!t}", {"text": " a fine {film} "})
        'text: a fine {film}'
    """
    for name, value in fields.items():
        if not isinstance(value, str):
            raise ValueError(f"fields: expected a text for {name!r}, got {value!r}")
    try:
        return _FORMATTER.vformat(template, (), fields)
    except KeyError as error:
        raise ValueError(
            f"template: expected fields among {', '.join(fields)}, "
            f"got {error.args[0]!r} in {template!r}"
        ) from None
    except (ValueError, IndexError, AttributeError) as error:
        raise ValueError(
            f"template: expected a format string with the conversions !t and !e, got "
            f"{template!r} ({error})"
        ) from None
