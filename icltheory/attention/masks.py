"""Attention masks by name: which tokens attend to which.

Keys and queries are numbered 0, ..., N - 1 for the demonstrations and N for the query
token.

==========  =======================================  ===============================
mask        a demonstration i attends to             the query attends to
==========  =======================================  ===============================
"demos"     every demonstration (the papers' M)      every demonstration, not itself
"causal"    demonstrations j <= i, itself included   every demonstration, not itself
"none"      every demonstration and the query        every demonstration and itself
==========  =======================================  ===============================
"""

import jax.numpy as jnp

from icltheory._checks import check_choice, check_nonnegative_int
from icltheory._core import calculator
from icltheory._typing import Array, Bool, Mask

MASKS = ("demos", "causal", "none")


@calculator(compiled=False, static=("mask", "num_demos"))
def attended_keys(mask: Mask, num_demos: int) -> Bool[Array, "P P"]:
    """Keys that each token attends to: rows are queries, columns are keys.

    Example:
        >>> attended_keys("causal", 2).astype(int).tolist()
        [[1, 0, 0], [1, 1, 0], [1, 1, 0]]

    Source: Yao et al. (2024), equation (1), the matrix M.
    """
    keys = normalized_keys(mask, num_demos)
    return keys if mask == "none" else keys.at[:, -1].set(False)


@calculator(compiled=False, static=("mask", "num_demos"))
def normalized_keys(mask: Mask, num_demos: int) -> Bool[Array, "P P"]:
    """Keys over which the softmax of each token is normalised, as a boolean mask.

    The papers' M stands outside the softmax. With ``"demos"`` every token normalises
    over all N + 1 keys and the weight on the query key is then lost: the weights on the
    demonstrations sum to less than 1. With ``"causal"`` a demonstration normalises over
    the keys j <= i only, as in a decoder, and the query as with ``"demos"``. Rows are
    queries, columns are keys.

    Example:
        >>> normalized_keys("demos", 1).astype(int).tolist()
        [[1, 1], [1, 1]]

    Source: Yao et al. (2024), equations (1) and (2).
    """
    check_choice("mask", mask, MASKS)
    check_nonnegative_int("num_demos", num_demos)
    every = jnp.ones((num_demos + 1, num_demos + 1), bool)
    return jnp.tril(every) if mask == "causal" else every
