"""A pruning sweep of GPT-2, and one full evaluation per rate."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machine import floor
from benchmarks.suite import EXACT, Pair, case, named, nbytes, once, seconds
from benchmarks.torch_search import RATES
from icltheory.layered import forward
from icltheory.models import GPT2, LayeredGPT2
from icltheory.pruning import Intervention, LowRank, Scored, prune_model, sweep

OTHER_RATES = (0.05, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.85)
PROMPTS, POINTS, DIM, WIDTH, LAYERS = 64, 41, 20, 256, 12
GROUP = (
    f"Sweep over {len(RATES)} clipping rates, GPT-2 of {LAYERS} layers, "
    f"{PROMPTS} prompts of {POINTS} points"
)


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


# A top layer, where sweeps are cheapest, and a middle one.
@case(GROUP, named("layer {}, {}", ((11, "attn"), (11, "all"), (6, "all"))), EXACT)
def bench_sweep(layer: int, module: str) -> Pair:
    model, params, inputs = problem()
    traces = []

    method = LowRank(at_least_one=True)

    def squared_error(predictions, y):
        traces.append(1)
        return jnp.mean((predictions - y) ** 2, axis=0)

    scored = Scored(model, params, inputs, squared_error, inputs[1:])
    whole = jax.jit(
        lambda params: squared_error(forward(model, params, inputs), inputs[1])
    )

    def one_by_one():
        each = [Intervention(layer, module, rate) for rate in RATES]
        pruned = [prune_model(model, params, one, method=method) for one in each]
        return jnp.stack([whole(params) for params in pruned])

    def swept(rates=RATES):
        return sweep(scored, layer, module, rates, method=method)

    slow, _ = once(one_by_one)
    effect = np.max(np.abs(np.asarray(slow - slow[:1]))) / np.max(np.abs(slow))
    traces.clear()
    _, first = once(swept)
    once(lambda: swept(OTHER_RATES))
    programs = f"{len(traces)} compilation" + "s" * (len(traces) > 1)
    return Pair(
        swept,
        one_by_one,
        "every rate through the whole model",
        floor=floor(operations(layer), nbytes(params, inputs)),
        tolerance=1e-5,
        note=f"pruning changes the score by {100 * effect:.2g} %; {programs}",
        facts={
            "one evaluation ms": 1e3 * seconds(lambda: whole(params)),
            "first call s": first,
        },
    )
