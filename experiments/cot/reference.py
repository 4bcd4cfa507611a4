"""Values read off the published figures, and those of an earlier simulation."""

from typing import NamedTuple

from experiments.cot.settings import EVEN_FRACTION, EVEN_TAU


class Reference(NamedTuple):
    """An error from another source.

    Attributes:
        value: Its value.
        prompts: How many prompts it was measured on.
    """

    value: float
    prompts: int


# Attention masses of Figure 20 before training, in the order of AttentionMasses.
START = (0.145, 0.26, 0.205, 0.385)
# Attention to the same step and input over training, in an independent simulation with
# one seed.
ALONG = {100: 0.745, 200: 0.910, 300: 0.940, 400: 0.952}
# CoT error at l = 10 in the same simulation: one seed, one draw of patterns, 2,000
# prompts.
AT_TEN: dict[tuple[str, float | str], Reference] = {
    (EVEN_FRACTION, 0.4): Reference(0.168, 2000),
    (EVEN_FRACTION, 0.6): Reference(0.058, 2000),
    (EVEN_FRACTION, 0.8): Reference(0.022, 2000),
    (EVEN_FRACTION, 1.0): Reference(0.0056, 2000),
    (EVEN_TAU, 0.4): Reference(0.237, 2000),
    (EVEN_TAU, 0.5): Reference(0.174, 2000),
    (EVEN_TAU, 0.6): Reference(0.116, 2000),
    (EVEN_TAU, 0.7): Reference(0.075, 2000),
}
# Figures 17 and 18 at prompt lengths 20, 40, 60, 80 and 100; the rows of A_k are not
# published.
PUBLISHED_LENGTHS = (20, 40, 60, 80, 100)
PUBLISHED = {
    "alpha'": {
        0.4: (0.236, 0.144, 0.078, 0.047, 0.028),
        0.6: (0.144, 0.048, 0.024, 0.0091, 0.0033),
        0.8: (0.083, 0.025, 0.0114, 0.0047, 0.0017),
        1.0: (0.061, 0.017, 0.0055, 0.0023, 0.0010),
    },
    "tau": {
        0.4: (0.170, 0.085, 0.050, 0.026, 0.0123),
        0.5: (0.113, 0.034, 0.011, 0.0055, 0.0018),
        0.6: (0.047, 0.012, 0.0038, 0.0012, None),
        0.7: (0.017, 0.0033, 0.001, None, None),
    },
    "rho": {
        0.5: (0.166, 0.103, 0.066, 0.041, 0.028),
        0.6: (None, 0.053, 0.037, 0.018, 0.009),
        0.7: (None, 0.047, 0.021, 0.012, 0.0076),
        0.8: (0.113, 0.034, 0.011, 0.0055, 0.0018),
    },
}
