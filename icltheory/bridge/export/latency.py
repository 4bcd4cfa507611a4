"""How long the products of a module take, dense and in factors, on this device."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int
from icltheory.bridge.model import LanguageModel
from icltheory.layered import get_matrix
from icltheory.pruning import module_matrices, rank_for_rate

__all__ = ["Latency", "measure_latency"]


class Latency(NamedTuple):
    """Seconds for the products of a module, in quartiles over the repeats.

    Attributes:
        dense: With whole matrices: first quartile, median, third quartile.
        factors: With two factors each.
        tokens: Tokens in one product.
        device: What it was measured on.
    """

    dense: tuple[float, float, float]
    factors: tuple[float, float, float]
    tokens: int
    device: str


def measure_latency(
    model: LanguageModel,
    layer: int,
    module: str,
    rate: Any,
    *,
    tokens: int = 1,
    repeats: int = 30,
    rule: str = "floor",
) -> Latency:
    """Times the products of a module with random inputs, whole and in factors.

    Every matrix is multiplied in factors of the rank that the rate leaves, also where
    that is slower. The factors' entries are random: time does not depend on them. The
    two are measured in turns, after a first call that compiles.

    Args:
        model: The model.
        layer: Number of the layer.
        module: Matrix or module.
        rate: Clipping rate.
        tokens: Tokens in one product.
        repeats: How often each is measured.
        rule: How a rate becomes a rank.

    Returns:
        The times.

    Raises:
        ValueError: If a number, layer, module or rate is out of range.

    References:
        Verified by ``tests/bridge/test_export.py``.
    """
    check_positive_int("tokens", tokens)
    check_positive_int("repeats", repeats)
    rng, dense, factors, inputs = np.random.default_rng(0), [], [], []

    def draw(*shape, like):
        return jnp.asarray(rng.normal(size=shape), like.dtype)

    for spec in module_matrices(model, layer, module):
        W = get_matrix(model.params, spec)
        (m, n), rank = W.shape, rank_for_rate(W.shape, rate, rule)
        dense.append((W,))
        factors.append((draw(rank, n, like=W), draw(m, rank, like=W)))
        inputs.append(draw(tokens, n, like=W))
    times = {id(chains): [] for chains in (dense, factors)}
    for turn in range(repeats + 1):
        for chains in (dense, factors):
            start = time.perf_counter()
            jax.block_until_ready(_products(chains, inputs))
            if turn:
                times[id(chains)].append(time.perf_counter() - start)
    return Latency(
        dense=_quartiles(times[id(dense)]),
        factors=_quartiles(times[id(factors)]),
        tokens=tokens,
        device=jax.devices()[0].device_kind,
    )


@jax.jit
def _products(chains, inputs):
    out = []
    for matrices, x in zip(chains, inputs, strict=True):
        for W in matrices:
            x = x @ W.T
        out.append(x)
    return out


def _quartiles(values):
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float(low), float(middle), float(high)
