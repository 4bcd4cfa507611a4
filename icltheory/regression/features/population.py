"""Distribution of features in prompts: exact, sampled, or in the infinite limit."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.special import gammaln, xlogy

from icltheory._checks import check_key, check_positive_int, concrete
from icltheory._noted import check_nonnegative, check_values
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, PRNGKey

__all__ = ["FeaturePopulation"]

_MOST_CONTEXTS = 100_000


@pytree
class FeaturePopulation:
    """Probabilities of the features, and the contexts with their probabilities.

    A context is how often each feature occurs in it: order plays no part. In the limit
    of infinite length there is one context, the probabilities themselves.

    Args:
        probabilities: p_k, of a query and of every example, ``(K,)``.
        counts: Occurrences of every feature, up to a factor for each context,
            ``(C, K)``.
        weights: Probability of each context, ``(C,)``.

    ``infinite``, ``finite`` and ``sampled`` check the probabilities, and are the usual
    ways to make one.

    Example:
        >>> import jax.numpy as jnp
        >>> p = jnp.array([0.5, 0.5])
        >>> FeaturePopulation.finite(p, 2).counts.tolist()
        [[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]]
        >>> FeaturePopulation.finite(p, 2).weights.tolist()
        [0.25, 0.5, 0.25]
        >>> FeaturePopulation.infinite(p).counts.tolist()
        [[0.5, 0.5]]

    Source: Huang et al. (2024), setting.
    """

    probabilities: Float[Array, " K"]
    counts: Float[Array, "C K"]
    weights: Float[Array, " C"]

    @classmethod
    def infinite(cls, probabilities: Float[ArrayLike, " K"]) -> "FeaturePopulation":
        """Returns the population with contexts of infinite length.

        Args:
            probabilities: p_k, ``(K,)``.

        Returns:
            The population, of one context.
        """
        p = _probabilities(probabilities)
        return cls(p, p[None], jnp.ones(1, p.dtype))

    @classmethod
    def finite(
        cls, probabilities: Float[ArrayLike, " K"], num_examples: int
    ) -> "FeaturePopulation":
        """Returns all contexts of a length with their multinomial probabilities.

        Args:
            probabilities: p_k, ``(K,)``; traced ones in their own precision.
            num_examples: Examples N of a context.

        Returns:
            The population, of binomial(N + K - 1, K - 1) contexts.
        """
        p = _probabilities(probabilities)
        check_positive_int("num_examples", num_examples)
        K, N = len(p), num_examples
        many = math.comb(N + K - 1, K - 1)
        if many > _MOST_CONTEXTS:
            raise ValueError(
                f"num_examples: expected at most {_MOST_CONTEXTS:,} contexts, got "
                f"{many:,} of {N} examples of {K} features; use sampled"
            )
        bars = np.array(list(itertools.combinations(range(N + K - 1), K - 1)))
        ends = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, N + K - 1)))
        counts = (np.diff(ends, axis=1) - 1)[::-1]
        # Logarithms avoid overflow of factorials and powers. They are in float64, or in
        # the dtype of p if it is traced.
        ways = gammaln(N + 1) - gammaln(counts + 1).sum(axis=1)
        known, floats = concrete(p), jnp.asarray(counts, p.dtype)
        if known is None:
            powers = jnp.sum(jax.scipy.special.xlogy(floats, p[None]), axis=1)
            return cls(p, floats, jnp.exp(jnp.asarray(ways, p.dtype) + powers))
        powers = xlogy(counts, known.astype(np.float64)[None]).sum(axis=1)
        return cls(p, floats, jnp.asarray(np.exp(ways + powers), p.dtype))

    @classmethod
    def sampled(
        cls,
        key: PRNGKey,
        probabilities: Float[ArrayLike, " K"],
        num_examples: int,
        num_contexts: int,
    ) -> "FeaturePopulation":
        """Draws random contexts with equal weights.

        Args:
            key: Random key.
            probabilities: p_k, ``(K,)``.
            num_examples: Examples N of a context.
            num_contexts: Contexts C.

        Returns:
            The empirical population.
        """
        check_key("key", key)
        p = _probabilities(probabilities)
        check_positive_int("num_examples", num_examples)
        check_positive_int("num_contexts", num_contexts)
        drawn = jax.random.categorical(
            key, jnp.log(p), shape=(num_contexts, num_examples)
        )
        counts = jnp.sum(jax.nn.one_hot(drawn, len(p), dtype=p.dtype), axis=1)
        return cls(p, counts, jnp.full(num_contexts, 1 / num_contexts, p.dtype))


def _probabilities(probabilities: Any) -> Array:
    p = jnp.asarray(probabilities)
    if p.ndim != 1 or len(p) < 2:
        raise ValueError(f"probabilities: expected shape (K,), K >= 2, got {p.shape}")
    check_nonnegative("probabilities", p)
    check_values(
        "probabilities", p.sum(), lambda total: abs(total - 1) <= 1e-5, "a sum of 1"
    )
    return p
