"""Noise of a linear stack's implicit gradients from b of N demonstrations."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.attention import LinearAttentionStack
from icltheory.noise import noise_spectrum, noisy_trajectory
from icltheory.regression.prompts import Prompt
from icltheory.trajectory import implicit_gd


class SubsetNoise(NamedTuple):
    """Deviations averaged over subsets, with axes of shots, prompts and layers.

    A deviation is the squared distance of the implicit gradient of b shots, normalised
    by 1/b, from that of all N, over the squared norm of the latter.

    Attributes:
        shots: Deviation of a prompt of b: the same demonstrations in every layer.
        fresh: Deviation with others drawn in every layer.
        gaussian: Deviation of eq. (4).
        formula: tr C_t over the squared norm, at the weights of all N.
        missed: Squared error / d of least squares on the b shots.
        off: Squared distance / d of the implied weight from that of least squares.
    """

    shots: np.ndarray
    fresh: np.ndarray
    gaussian: np.ndarray
    formula: np.ndarray
    missed: np.ndarray
    off: np.ndarray


def subset_noise(
    key: Any,
    stack: LinearAttentionStack,
    prompt: Prompt,
    shots: tuple[int, ...],
    subsets: int,
) -> SubsetNoise:
    """Measures the noise for every b on random subsets of the demonstrations."""
    measure = functools.partial(_measure, subsets=subsets)
    keys = jax.random.split(key, len(prompt.y))
    by_shots = [measure(keys, stack, prompt, jnp.int32(b)) for b in shots]
    return SubsetNoise(*(np.stack(parts) for parts in zip(*by_shots, strict=True)))


@functools.partial(jax.jit, static_argnames="subsets")
def _measure(keys, stack, prompts, b, *, subsets):
    def measure(key, prompt):
        X, y, w, (H, _) = prompt.X, prompt.y, prompt.w, prompt.tokens()
        scale = 1.0 / len(y)
        G = implicit_gd(stack, H, scale=scale).G
        size = jnp.sum(G**2, axis=(1, 2))

        def deviation(G_b):
            return jnp.sum((G_b - G) ** 2, axis=(1, 2)) / size

        def simulated(key, noise):
            path = noisy_trajectory(key, stack, H, b, noise=noise, scale=scale)
            return deviation(path.G + path.noise)

        def subset(key):
            chosen = (jax.random.permutation(key, len(y)) < b).astype(X.dtype)
            path = implicit_gd(stack, H * chosen[:, None], scale=1 / b)
            w_ls = jnp.linalg.pinv(X * chosen[:, None]) @ (y * chosen)
            w_hat = -path.W[-1, -1, :-1]  # label slot: minus the prediction
            return (
                deviation(path.G),
                simulated(key, "fresh_shots"),
                simulated(key, "gaussian"),
                jnp.mean((w_ls - w) ** 2),
                jnp.mean((w_hat - w_ls) ** 2),
            )

        same, fresh, gaussian, missed, off = (
            jnp.mean(part, axis=0)
            for part in jax.vmap(subset)(jax.random.split(key, subsets))
        )
        formula = noise_spectrum(stack, H, b, scale=scale).trace / size
        return same, fresh, gaussian, formula, missed, off

    return jax.vmap(measure)(keys, prompts)
