r"""Measures which terms of the bound do not depend on the weights.

With the shared mask :math:`z_i^t = J_t \operatorname{vech}(h_i h_i^\\top)` with one
matrix :math:`J_t` for all demonstrations, which the weights and :math:`W_{t-1}` decide.
Where :math:`m_t = n(n + 1)/2` it is invertible on the support, and a divergence between
two Gaussians made of the same z does not see it: the term of a prior that holds out
demonstrations, and that of the population's Gaussian, are the same number in all layers
and for all such weights. For smaller supports they depend on which part is seen.
"""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bound_vs_error.learners import (
    GenericWeights,
    GradientDescent,
    draw_tokens,
    population_moments,
)
from experiments.bound_vs_error.simulate import held_out_sizes
from icltheory.attention import LinearAttentionStack
from icltheory.bounds import anisotropic_bound, held_out_bound, noisy_steps

_PROMPTS, _DEMOS, _SHOTS, _LAYERS, _STACKS = 4, 40, 20, 3, 2
HELD_OUT, POPULATION = "held-out prior", "population's Gaussian"


@jax.jit
def layer_terms(stack: LinearAttentionStack, key: jax.Array) -> dict[str, jax.Array]:
    """Computes the terms of both priors on noisy paths of the same prompts, (L,)."""
    learner = GenericWeights(0, _LAYERS)
    data, noise = jax.random.split(key)
    keys = jax.random.split(data, _PROMPTS)
    pools = jax.vmap(lambda k: draw_tokens(k, learner, _DEMOS))(keys)

    def center(layer, W):
        mean, _ = population_moments(stack, layer, W, learner.task)
        return mean.reshape(W.shape)

    def prior(layer, W):
        return population_moments(stack, layer, W, learner.task)[1] / _SHOTS

    steps = noisy_steps(stack, pools, _SHOTS, scale=1 / _DEMOS, key=noise)
    held_out = held_out_bound(steps, 1.0, held_out_sizes(_DEMOS)[0])
    population = anisotropic_bound(steps, 1.0, center=center, prior=prior)
    return {HELD_OUT: held_out.terms, POPULATION: population.terms}


def measure_invariance(seed: int) -> dict:
    """Computes terms of several stacks on equal pools, with several supports."""
    key = jax.random.key(seed)
    generic = [
        GenericWeights(seed + i, _LAYERS, scale=0.3).stack() for i in range(_STACKS)
    ]
    names = [f"generic weights {i + 1}" for i in range(_STACKS)]
    stacks = dict(zip(names, generic, strict=True))
    stacks["W_V of rank 1"] = _cut(generic[0])
    stacks["gradient descent"] = GradientDescent(2, _LAYERS).stack()
    terms = {name: layer_terms(stack, key) for name, stack in stacks.items()}
    return {
        "terms": {
            name: {prior: np.asarray(v).tolist() for prior, v in each.items()}
            for name, each in terms.items()
        },
        "relative_spread": {
            prior: {
                "full support": _spread([terms[name] for name in names], prior),
                "W_V of rank 1": _spread([terms["W_V of rank 1"]], prior),
                "gradient descent": _spread([terms["gradient descent"]], prior),
            }
            for prior in (HELD_OUT, POPULATION)
        },
    }


def _spread(terms: list[dict[str, jax.Array]], prior: str) -> float:
    """Range of a term over all layers and stacks, divided by its mean."""
    values = np.stack([np.asarray(each[prior]) for each in terms])
    return float(np.ptp(values) / values.mean())


def _cut(stack: LinearAttentionStack) -> LinearAttentionStack:
    """Returns the stack with each value matrix truncated to rank 1."""
    U, s, Vt = jnp.linalg.svd(stack.W_V)
    W_V = s[:, :1, None] * U[:, :, :1] * Vt[:, :1, :]
    return LinearAttentionStack(W_V, stack.W_K, stack.W_Q)
