"""Random parameters in the shapes of a model, without compiling its ``init``."""

import jax
import jax.numpy as jnp
import numpy as np


def drawn(init, *args, scale=0.3, seed=1, dtype=None):
    """What ``init(key, *args)`` returns, with Gaussian numbers."""
    shapes = jax.eval_shape(init, jax.random.key(0), *args)
    rng = np.random.default_rng(seed)

    def draw(leaf):
        values = scale * rng.standard_normal(leaf.shape)
        return jax.device_put(values.astype(jnp.dtype(dtype or leaf.dtype)))

    return jax.tree.map(draw, shapes)
