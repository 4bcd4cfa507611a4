"""What the tests of the statistics share."""

import numpy as np


def flags(*counts):
    """Booleans: so many false, so many true, and so on."""
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts)
