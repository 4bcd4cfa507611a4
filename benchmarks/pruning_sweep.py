"""A pruning sweep of GPT-2 against one full evaluation for every rate.

Command
    python -m benchmarks.pruning_sweep

About a minute on two cores; the times are the smallest of several.
"""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from icltheory.layered import forward
from icltheory.models import GPT2, LayeredGPT2
from icltheory.pruning import prune_module, sweep

RATES = (0.0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
OTHER_RATES = (0.05, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.85)
PROMPTS, POINTS, DIM = 64, 41, 20
TRACES: list[int] = []


def squared_error(predictions, y):
    """Traced once for each program that contains it."""
    TRACES.append(1)
    return jnp.mean((predictions - y) ** 2, axis=0)


def fastest(*functions, repeats: int = 5) -> list[float]:
    """Smallest wall time of each, taken in turns so that all meet the same machine."""
    times = [[] for _ in functions]
    for _ in range(repeats):
        for function, kept in zip(functions, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(function())
            kept.append(time.perf_counter() - start)
    return [min(kept) for kept in times]


def problem():
    """The published architecture with weights as large as trained ones."""
    module = GPT2(dim=DIM, num_positions=2 * POINTS, width=256, num_layers=12)
    keys = jax.random.split(jax.random.key(0), 3)
    X = jax.random.normal(keys[0], (PROMPTS, POINTS, DIM), jnp.float32)
    y = jnp.einsum("bpd,bd->bp", X, jax.random.normal(keys[1], (PROMPTS, DIM)))
    params = jax.jit(module.init)(keys[2], X, y)["params"]
    params = jax.tree.map(lambda leaf: 2 * leaf if leaf.ndim == 2 else leaf, params)
    return LayeredGPT2(module), params, (X, y)


def row(model, params, inputs, layer, module):
    y = inputs[1]

    @jax.jit
    def whole(params):
        return squared_error(forward(model, params, inputs), y)

    def each():
        scores = []
        for rate in RATES:
            pruned = prune_module(model, params, layer, module, rate, at_least_one=True)
            scores.append(whole(pruned))
        return jnp.stack(scores)

    def swept(rates=RATES):
        return sweep(
            *(model, layer, module, rates, squared_error),
            params=params,
            inputs=inputs,
            score_args=(y,),
            at_least_one=True,
        )

    TRACES.clear()
    start = time.perf_counter()
    fast = jax.block_until_ready(swept())
    first = time.perf_counter() - start
    swept(OTHER_RATES)
    compiled = len(TRACES)
    slow = each()
    one, seconds = fastest(functools.partial(whole, params), swept)
    (each_seconds,) = fastest(each, repeats=1)
    size = np.max(np.abs(slow))
    difference = np.max(np.abs(np.asarray(fast - slow))) / size
    effect = np.max(np.abs(np.asarray(slow - slow[:1]))) / size
    return [
        f"layer {layer}, {module}",
        *(1e3 * one, 1e3 * seconds, seconds / one, 1e3 * each_seconds),
        *(each_seconds / seconds, float(difference), float(effect)),
        *(compiled, first - seconds),
    ]


def main() -> None:
    jax.config.update("jax_default_matmul_precision", "highest")
    model, params, inputs = problem()
    rows = [
        row(model, params, inputs, layer, module)
        for layer, module in ((11, "attn"), (11, "all"), (6, "all"))
    ]
    _measure.table(
        f"{len(RATES)} clipping rates, GPT-2 of 12 layers, {PROMPTS} prompts of "
        f"{POINTS} points, float32, {jax.devices()[0].device_kind}",
        ["", "evaluation ms", "sweep ms", "sweep / evaluation", "rate by rate ms"]
        + ["x faster", "difference", "effect of pruning", "compilations", "compile s"],
        rows,
    )


if __name__ == "__main__":
    main()
