"""Errors that a test expects, by how their text begins."""

import re

import pytest


def raises(message, kind=ValueError):
    """Expects an error whose text begins with the message."""
    return pytest.raises(kind, match="^" + re.escape(message))


def raises_one_line(message):
    """Expects an error of one line that begins with the message."""
    return pytest.raises(ValueError, match="^" + re.escape(message) + r"[^\n]*$")
