"""What the tests of the statistics share."""

import re

import numpy as np
import pytest


def raises(message):
    return pytest.raises(ValueError, match="^" + re.escape(message))


def flags(*counts):
    """Booleans: so many false, so many true, and so on."""
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts)
