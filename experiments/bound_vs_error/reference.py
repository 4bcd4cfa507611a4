"""Reference values of the same learners from an independent simulation.

It was written in NumPy, shares no code with this library and took no closed form: fresh
demonstrations stand for the population. Errors come with their standard errors, bounds
to three digits without; ``replicates`` says how many prompts a row had, so that their
sampling error can be had from the spread measured here. ``det`` is the learner without
noise. The generic weights were drawn for every row, from another generator than
here: only what does not depend on the weights can be compared.
"""

import math

__all__ = ["GENERIC", "ROWS", "replicates", "rounding"]

_COLUMNS = (
    *("error", "error_se", "risk", "inside", "frobenius", "exact", "centred"),
    *("anisotropic", "held_out_half", "held_out_most", "held_out_all_but_one"),
    *("det_error", "det_error_se", "smoothing"),
)
# The key is (d_in, N, b, L), the values are in the order of the columns.
_TABLE = {
    (1, 50, 25, 1): "0.01205 0.00158 0.468 0.279 0.282 0.257 0.125 0.125 0.216 0.171 "
    "0.165 0.01216 0.00157 0.110",
    (1, 50, 5, 1): "0.00993 0.00168 0.503 0.192 0.197 0.167 0.066 0.066 0.123 0.081 "
    "0.076 0.01216 0.00157 0.110",
    (1, 1000, 10, 1): "0.00142 0.00050 0.475 0.048 0.048 0.041 0.004 0.004 0.006 0.004 "
    "0.004 0.00147 0.00049 0.014",
    (2, 100, 50, 2): "0.01261 0.00064 0.323 0.419 0.422 0.365 0.178 0.174 0.262 0.228 "
    "0.220 0.01245 0.00062 0.121",
    (5, 10, 5, 2): "0.19163 0.00440 0.563 1.851 2.014 1.559 1.412 1.362 inf 7.086 "
    "7.086 0.23729 0.00375 0.896",
    (5, 50, 25, 2): "0.05443 0.00119 0.369 0.872 0.882 0.664 0.434 0.424 0.771 0.627 "
    "0.649 0.05573 0.00110 0.350",
    (5, 200, 100, 2): "0.01504 0.00046 0.323 0.500 0.501 0.403 0.199 0.195 0.288 0.252 "
    "0.242 0.01527 0.00045 0.137",
    (5, 1000, 500, 2): "0.00300 0.00026 0.309 0.256 0.256 0.218 0.085 0.084 0.119 "
    "0.104 0.097 0.00298 0.00025 0.051",
    (5, 1000, 100, 2): "0.00301 0.00027 0.317 0.209 0.210 0.163 0.038 0.034 0.049 "
    "0.037 0.034 0.00298 0.00025 0.051",
    (5, 1000, 20, 2): "0.00290 0.00035 0.359 0.166 0.168 0.114 0.029 0.018 0.026 0.019 "
    "0.017 0.00298 0.00025 0.051",
    (5, 1000, 990, 2): "0.00298 0.00025 0.308 0.334 0.334 0.306 0.215 0.215 0.304 "
    "0.500 0.943 0.00298 0.00025 0.051",
    (5, 1000, 20, 8): "0.00232 0.00016 0.270 0.265 0.275 0.165 0.046 0.035 0.051 0.038 "
    "0.036 0.00235 0.00004 0.042",
    (20, 60, 30, 4): "0.16464 0.00127 0.398 2.362 2.390 1.480 1.364 1.348 5.683 2.733 "
    "2.619 0.17049 0.00118 0.746",
    (20, 400, 200, 4): "0.02432 0.00019 0.273 0.994 0.996 0.646 0.402 0.396 0.591 "
    "0.519 0.507 0.02426 0.00018 0.206",
    (20, 1000, 40, 4): "0.00977 0.00028 0.316 0.500 0.505 0.248 0.085 0.078 0.114 "
    "0.085 0.079 0.00966 0.00012 0.109",
}
ROWS = {
    row: dict(zip(_COLUMNS, map(float, values.split()), strict=True))
    for row, values in _TABLE.items()
}
# The key is (N, b), for width 3 and one layer.
GENERIC = {
    (20, 10): {"anisotropic": 0.619},
    (100, 50): {"anisotropic": 0.221},
    (1000, 500): {"anisotropic": 0.065},
    (1000, 20): {"anisotropic": 0.014},
    (6, 3): {"anisotropic": math.inf},
}


def replicates(num_demos: int, generic: bool) -> int:
    """Number of prompts behind the reference values of a row."""
    return 2000 if generic else int(min(4000, max(400, 2e6 / num_demos)))


def rounding(name: str) -> float:
    """Half a unit of the last digit of a reference value."""
    return 5e-6 if name in ("error", "det_error") else 5e-4
