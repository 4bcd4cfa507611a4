"""Half precision against float32, within what its rounding can do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.bridge import stored
from tests.bridge.tiers import quick

ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
NAMES = ("gptj", "gpt2", "mistral", "qwen3", "gpt_neox", "gemma")
DRAWS = 8


def shake(params, size, rng):
    """Moves rows, columns and entries of every parameter by a relative amount.

    Rounding what a matrix reads or gives scales its columns or rows: this is the
    backward error of a forward pass. Beside each matrix numbers are rounded twice on
    either side, by a root mean square of at most ``size / sqrt(3)`` each, so that signs
    of that size are no less than the two together.
    """

    def move(leaf):
        ones = (1,) * (leaf.ndim - 1)
        moved = np.asarray(leaf)
        for shape in (leaf.shape, ones + leaf.shape[-1:], leaf.shape[:1] + ones):
            moved = moved * (1 + size * rng.choice([-1, 1], shape))
        return jnp.asarray(moved, leaf.dtype)

    return jax.tree.map(move, params)


def bound(model, ids, logits, size):
    """The largest change of a logit over random roundings of that size."""
    changes = []
    for seed in range(DRAWS):
        params = shake(model.params, size, np.random.default_rng(seed))
        moved = model.replace(params=params).logits(ids)
        changes.append(stored.difference(moved, logits))
    return max(changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(["gptj"], NAMES))
def test_half_precision_is_rounding(name, tmp_path):
    ids, logits = stored.expected(name)
    full = stored.load(name, tmp_path / "full")
    for dtype, size in ROUNDOFF.items():
        half = stored.load(name, tmp_path / dtype, dtype=dtype)
        streams, caches = stored.run(half, ids, np.ones(ids.shape, bool))
        kinds = {leaf.dtype for leaf in jax.tree.leaves(half.params)}
        kinds |= {stream.h.dtype for stream in streams}
        kinds |= {array.dtype for cache in caches for array in (cache.k, cache.v)}
        assert kinds == {jnp.dtype(dtype)}
        ours = stored.read_out(half.decoder, half.params, streams[-1])
        assert ours.dtype == jnp.float32
        assert (ours != ours.astype(dtype)).any(), "logits were rounded"
        error, most = stored.difference(ours, logits), bound(full, ids, logits, size)
        assert error <= most, f"{dtype}: {error:.1e}, at most {most:.1e}"
        print(f"{name} {dtype}: {error:.1e} of {most:.1e}")
