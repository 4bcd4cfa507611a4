"""Errors that a test expects, by how their text begins."""

import re

import pytest

JAX = r"\n-+\nFor simplicity, JAX has removed"  # a note that JAX adds while tracing


def raises(message, kind=ValueError):
    """Expects an error whose text begins with the message."""
    return pytest.raises(kind, match="^" + re.escape(message))


def raises_one_line(message):
    """Expects an error of one line that begins with the message."""
    start = "^" + re.escape(message) + r"[^\n]*"
    return pytest.raises(ValueError, match=start + f"({JAX}|$)")
