"""Divergences of noisy steps from priors with a covariance, by prompt and layer.

Gradients are written in a basis of the support. Covariances are kept as rows whose Gram
matrix they are, see :func:`~icltheory.bounds.gaussian.factored_term`.
"""

import functools

import jax
import jax.numpy as jnp

from icltheory._core import exact_products
from icltheory._typing import Array
from icltheory.batching import in_batches
from icltheory.bounds.gaussian import centred_rows, factored_term, held_out_divergence
from icltheory.bounds.steps import NoisySteps, each_layer
from icltheory.noise._routes import compressed, support_coordinates
from icltheory.noise.gradients import layer_parts


def held_out_terms(steps: NoisySteps, held_out: int) -> Array:
    """Terms of the prior that has seen the first M demonstrations, (B, L)."""
    unused = 1 - _used_columns(steps)

    def term(z, padding):
        return held_out_divergence(z, steps.noise_factor, held_out, padding)

    def terms(H, W):
        z, _ = _in_support(steps, H, W)
        return jax.vmap(jax.vmap(term), (0, None))(z, unused)

    each = in_batches(terms, steps.batch_size, steps.H, steps.W)
    # The inverse Wishart matrix of M demonstrations has a mean for M > m + 2 alone.
    return _covered(steps, jnp.where((held_out > steps.dim + 2)[None], each, jnp.inf))


@jax.jit
@exact_products
def fitted_terms(steps: NoisySteps, flat: Array) -> Array:
    """Terms with the covariance that is fitted to the prompts, in its own pass."""

    def spread(first):
        H, W, part = jax.tree.map(
            lambda leaf: leaf[first : first + size], (steps.H, steps.W, flat)
        )
        rows, delta, U = _factors(steps, H, W, part)
        moment = compressed(jnp.concatenate([rows, delta[:, :, None]], axis=2))
        spread = jnp.moveaxis(moment @ jnp.swapaxes(U, -1, -2), 0, 1)
        return compressed(spread.reshape(spread.shape[0], -1, spread.shape[-1]))

    size = steps.batch_size or flat.shape[0]
    both = functools.reduce(
        lambda a, b: compressed(jnp.concatenate([a, b], axis=1)),
        map(spread, range(0, flat.shape[0], size)),
    )
    common = both / flat.shape[0] ** 0.5

    def root(_, U, pad):
        return jnp.linalg.qr(_over(common[None] @ U, pad), mode="r")

    return _terms(steps, flat, flat, root)


def given_terms(steps: NoisySteps, flat: Array, W: Array, prior) -> Array:
    """Terms of the prior whose covariance is ``prior(layer, W)``."""

    def root(W, U, pad):
        Sigma = jnp.swapaxes(U, -1, -2) @ each_layer(prior, W) @ U
        return jnp.swapaxes(jnp.linalg.cholesky(Sigma + pad[None]), -1, -2)

    return _terms(steps, flat, W, root)


def _terms(steps, flat, W, root):
    """Terms for ``root(W, basis, pad)``, R with R' R the prior in coordinates."""
    used = _used_columns(steps)
    pad = (1 - used)[:, :, None] * jnp.eye(used.shape[1], dtype=used.dtype)[None]
    term = jax.vmap(jax.vmap(factored_term))

    def terms(W, *part):
        rows, delta, U = _factors(steps, *part)
        return term(delta, _over(rows, pad), root(W, U, pad))

    each = in_batches(terms, steps.batch_size, W, steps.H, steps.W, flat)
    return _covered(steps, each)


def _factors(steps, H, W, flat):
    """Rows of C_t, the distance and the basis, in coordinates of the support."""
    z, U = _in_support(steps, H, W)
    delta = jnp.einsum("bld,bldm->blm", flat, U)
    kappa = steps.noise_factor.astype(z.dtype)
    return centred_rows(z, kappa / H.shape[-2]), delta, U


def _in_support(steps, H, W):
    """Gradients z_i in a basis of the support, (B, L, N, m), and the basis."""
    stack, _, scale = learner = steps.learner

    def one(H, W):
        tokens, *_, right = layer_parts(learner, H, W)
        rows, basis = jax.vmap(support_coordinates)(scale * stack.W_V, right, tokens)
        return H.shape[0] * rows, basis

    z, basis = jax.vmap(one, (0, None if W is None else 0))(H, W)
    used = _used_columns(steps)[None, :, None, :]
    return z * used, basis * used


def _used_columns(steps):
    """1 for the coordinates of the support and 0 for the others, (L, n (n + 1) / 2)."""
    columns = jnp.arange(steps.width * (steps.width + 1) // 2)
    return (columns[None] < steps.dim[:, None]).astype(steps.H.dtype)


def _over(rows, pad):
    """Stacks the rows of each prompt and layer above those of unused coordinates."""
    below = jnp.broadcast_to(pad[None], (rows.shape[0], *pad.shape))
    return jnp.concatenate([rows, below], axis=2)


def _covered(steps, each):
    """Infinity for a prompt whose C_t is singular on the support."""
    return jnp.where(steps.spectrum.rank == steps.dim[None], each, jnp.inf)
