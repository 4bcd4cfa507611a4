"""A pruning sweep of GPT-2, compared with one full evaluation per rate.

Command
    python -m benchmarks.pruning_sweep

Under a minute on two cores.
"""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from icltheory.layered import forward
from icltheory.models import GPT2, LayeredGPT2
from icltheory.pruning import prune_module, sweep

RATES = (0.0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
OTHER_RATES = (0.05, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.85)
PROMPTS, POINTS, DIM, WIDTH, LAYERS = 64, 41, 20, 256, 12
GROUP = (
    f"Sweep over {len(RATES)} clipping rates, GPT-2 of {LAYERS} layers, "
    f"{PROMPTS} prompts of {POINTS} points"
)
TRACES: list[int] = []


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures sweeps of a top layer, where they are cheapest, and a middle one."""
    pruned = {(11, "attn"): 13, (11, "all"): 15, (6, "all"): 20}
    cases = [
        Case(f"layer {layer}, {module}", seconds, functools.partial(row, layer, module))
        for (layer, module), seconds in pruned.items()
    ]
    yield from each(GROUP, budget, cases)


def squared_error(predictions, y):
    """Mean squared error, which also counts how often it is traced."""
    TRACES.append(1)
    return jnp.mean((predictions - y) ** 2, axis=0)


def problem():
    """Builds the published architecture with weights as large as trained ones."""
    module = GPT2(dim=DIM, num_positions=2 * POINTS, width=WIDTH, num_layers=LAYERS)
    keys = jax.random.split(jax.random.key(0), 3)
    X = jax.random.normal(keys[0], (PROMPTS, POINTS, DIM), jnp.float32)
    w = jax.random.normal(keys[1], (PROMPTS, DIM), jnp.float32)
    y = jnp.einsum("bpd,bd->bp", X, w)
    params = jax.jit(module.init)(keys[2], X, y)["params"]
    params = jax.tree.map(lambda leaf: 2 * leaf if leaf.ndim == 2 else leaf, params)
    return LayeredGPT2(module), params, (X, y)


def operations(layer: int) -> float:
    """Counts operations: ``layer`` shared blocks, and the others for each rate."""
    # A token in a block takes 24 width^2 in products and 4 T width in attention.
    # Decompositions are left out.
    tokens = 2 * POINTS
    block = PROMPTS * tokens * (24 * WIDTH**2 + 4 * tokens * WIDTH)
    return block * (layer + len(RATES) * (LAYERS - layer))


@jax.default_matmul_precision("highest")
def row(layer: int, module: str) -> BenchmarkRow:
    """Times one sweep, and the same scores computed rate by rate."""
    model, params, inputs = problem()
    y = inputs[1]

    @jax.jit
    def whole(params):
        return squared_error(forward(model, params, inputs), y)

    def one_by_one():
        scores = []
        for rate in RATES:
            pruned = prune_module(model, params, layer, module, rate, at_least_one=True)
            scores.append(whole(pruned))
        return jnp.stack(scores)

    def swept(rates=RATES):
        return sweep(
            model,
            layer,
            module,
            rates,
            squared_error,
            params=params,
            inputs=inputs,
            score_args=(y,),
            at_least_one=True,
        )

    TRACES.clear()
    fast, first = _measure.once(swept)
    swept(OTHER_RATES)
    programs = len(TRACES)
    jax.block_until_ready(whole(params))
    slow, theirs = _measure.once(one_by_one)
    evaluation, ours = _measure.in_turns(functools.partial(whole, params), swept)
    size = np.max(np.abs(slow))
    effect = np.max(np.abs(np.asarray(slow - slow[:1]))) / size
    return BenchmarkRow(
        ours_s=ours,
        alternative="every rate through the whole model",
        alternative_s=theirs,
        floor_s=_measure.floor(operations(layer), _measure.nbytes(params, inputs)),
        error=_measure.disagreement(fast, slow),
        tolerance=1e-5,
        note=f"pruning changes the score by {100 * effect:.2g} %; "
        f"{programs} compilation" + "s" * (programs > 1),
        facts={"one evaluation ms": 1e3 * evaluation, "compile s": first - ours},
    )


if __name__ == "__main__":
    _alone.main(measure)
