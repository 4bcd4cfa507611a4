"""The quantities of each prompt in Theorem 2, for all prompts and layers."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from icltheory._typing import Array
from icltheory.batching import in_batches
from icltheory.noise import NoiseSpectrum, noisy_trajectory
from icltheory.noise._routes import support_coordinates
from icltheory.noise.gradients import layer_parts
from icltheory.noise.spectrum import spectrum_on_path
from icltheory.trajectory._recursion import Learner


class Sample(NamedTuple):
    """The noisy learner of Theorem 2 on B prompts.

    Attributes:
        learner: The stack as an implicit learner.
        H: The pools of demonstrations, ``(B, N, n)``.
        shots: Demonstrations b that the learner sees.
        W: Weights before each layer, ``(B, L, n, n)``; Theorem 1's where ``None``.
        batch_size: PromptQuantities that are computed at the same time.
    """

    learner: Learner
    H: Array
    shots: Any
    W: Any
    batch_size: int | None


class PromptQuantities(NamedTuple):
    """Quantities of B prompts; arrays have leading axes (B, L).

    Attributes:
        spectrum: Of the noise covariance.
        squared_G: ||G_t||_F^2.
        squared_delta_W: ||dW_t||_F^2.
        G: Implicit gradients, or None where nobody asked.
        W: Weights before each step, or None.
        width: Token width n.
    """

    spectrum: NoiseSpectrum
    squared_G: Array
    squared_delta_W: Array
    G: Any
    W: Any
    width: int


def noisy_paths(key, sample: Sample):
    """Weights before each layer of the noisy learner, one path per prompt."""
    stack, demo_updates, scale = sample.learner

    def one(key, H):
        path = noisy_trajectory(
            key, stack, H, sample.shots, demo_updates=demo_updates, scale=scale
        )
        return jnp.concatenate([jnp.zeros_like(path.W[:1]), path.W[:-1]])

    keys = jax.random.split(key, sample.H.shape[0])
    return in_batches(jax.vmap(one), sample.batch_size, keys, sample.H)


def prompt_quantities(sample: Sample, support_dims, dense: bool) -> PromptQuantities:
    """Computes spectra and norms of every prompt, and dense G and W on request."""
    learner, H, shots, W, batch_size = sample

    def one(H, W):
        spectrum, g = spectrum_on_path(learner, H, shots, W, support_dims)
        V, U, C = g.left, g.right_delta_W, g.right_G
        G = jnp.swapaxes(V, 1, 2) @ C if dense else None
        return spectrum, _thin_square(V, C), _thin_square(V, U), G

    mapped = jax.vmap(one, (0, None if W is None else 0))
    spectrum, squared_G, squared_dW, G = in_batches(mapped, batch_size, H, W)
    if G is not None and W is None:
        W = jnp.cumsum(G, axis=1) - G
    return PromptQuantities(spectrum, squared_G, squared_dW, G, W, H.shape[-1])


def in_support(learner: Learner, H, W):
    """Returns gradients z_i in a basis of the support, with the basis, by prompt."""

    def one(H, W):
        tokens, *_, B = layer_parts(learner, H, W)
        A = learner.scale * learner.stack.W_V
        rows, basis = jax.vmap(support_coordinates)(A, B, tokens)
        return H.shape[0] * rows, basis

    return jax.vmap(one, (0, None if W is None else 0))(H, W)


def _thin_square(A, B):
    """Computes ||A^T B||_F^2 for rows A, B without forming the product."""
    return jnp.sum(
        (A @ jnp.swapaxes(A, 1, 2)) * (B @ jnp.swapaxes(B, 1, 2)), axis=(1, 2)
    )
