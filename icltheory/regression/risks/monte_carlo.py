"""Risks of any predictor by simulation, with their standard errors."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._arguments import real_numbers
from icltheory._calculators import calculator
from icltheory._checks import check_nonnegative_int, check_positive_int, check_shape
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression.prompts import PrefixPrompt, Prompt
from icltheory.statistics import Estimate

__all__ = ["monte_carlo_risk", "squared_errors"]


@calculator(compiled=False)
def monte_carlo_risk(
    predictor_prefixes: Callable[..., Array],
    source: Any,
    key: PRNGKey | None = None,
    num_prompts: int | None = None,
    *,
    num_examples: int | None = None,
    query_noise: bool = True,
    batch_size: int | None = None,
) -> Estimate:
    r"""Simulated risk of a predictor after k = 0, ..., N examples.

    .. math:: R_k \approx \frac1S \sum_{s=1}^S (\hat y_{s,k} - y_{s,k})^2.

    Args:
        predictor_prefixes: Called as ``f(X, y, X_query)`` on a batch, returns (B, P):
            a ``*_prefixes`` predictor, or a trained model.
        source: A task, a shift, or prompts already drawn; or any ``sampler(key,
            num_points, batch_size)`` that returns a
            :class:`~icltheory.regression.PrefixPrompt`.
        key: Typed key; not needed for prompts already drawn.
        num_prompts: Prompts S; not needed for prompts already drawn.
        num_examples: Largest number of examples N; 2 d if None, as in Garg.
        query_noise: Whether errors are against the noisy label. Without it the source
            must be a task, which knows the noiseless one.
        batch_size: Prompts handled at a time, a divisor of S; all if None.

    Returns:
        Mean and standard error, each (N + 1,).

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.regression import LinearPopulation, predictors
        >>> task = LinearPopulation.isotropic(2)
        >>> args = predictors.ols_prefixes, task, jax.random.key(0), 400
        >>> risk = monte_carlo_risk(*args, num_examples=3)
        >>> exact = jnp.array([2.0, 1.0, 0.0, 0.0])
        >>> bool((abs(risk.mean - exact) <= 5 * risk.standard_error + 1e-9).all())
        True

    Source: Garg et al. (2022), Appendix A.
    """
    errors = squared_errors(
        predictor_prefixes,
        source,
        key,
        num_prompts,
        num_examples=num_examples,
        query_noise=query_noise,
        batch_size=batch_size,
    )
    if not len(errors):
        raise ValueError("source: expected at least one prompt, got none")
    return Estimate.of(errors)


@calculator
def squared_errors(
    predictor_prefixes: Callable[..., Array],
    source: Any,
    key: PRNGKey | None = None,
    num_prompts: int | None = None,
    *,
    num_examples: int | None = None,
    query_noise: bool = True,
    batch_size: int | None = None,
) -> Float[Array, "S P"]:
    r"""Squared errors of a predictor, prompt by prompt and prefix by prefix.

    .. math:: e_{s,k} = (\hat y_{s,k} - y_{s,k})^2, \qquad k = 0, \dots, N.

    The same key gives the same prompts, so errors of two predictors are paired.

    Args:
        predictor_prefixes: Called as ``f(X, y, X_query)`` on a batch, returns (B, P).
        source: A task, a shift, or prompts already drawn; or any ``sampler(key,
            num_points, batch_size)`` that returns a
            :class:`~icltheory.regression.PrefixPrompt`.
        key: Typed key; not needed for prompts already drawn.
        num_prompts: Prompts S; not needed for prompts already drawn.
        num_examples: Largest number of examples N; 2 d if None, as in Garg.
        query_noise: Whether errors are against the noisy label. Without it the source
            must be a task, which knows the noiseless one.
        batch_size: Prompts handled at a time, a divisor of S; all if None.

    Returns:
        The errors.

    Example:
        >>> from icltheory.regression import predictors, shifts
        >>> shift = shifts.Shift("skewed", 4)
        >>> squared_errors(predictors.zero_prefixes, shift, jax.random.key(0), 6).shape
        (6, 9)

    Source: Garg et al. (2022), Appendix A.
    """
    if isinstance(source, Prompt | PrefixPrompt):
        if not query_noise:
            raise ValueError(
                "query_noise: expected True for prompts already drawn, whose noiseless "
                "labels are unknown, got False"
            )
        prompt = source.prefixes() if isinstance(source, Prompt) else source
        return _errors(predictor_prefixes, prompt, prompt.y_query)
    if key is None or num_prompts is None:
        missing = "key" if key is None else "num_prompts"
        raise ValueError(
            f"{missing}: expected key and num_prompts unless the prompts are already "
            "drawn, got None"
        )
    check_positive_int("num_prompts", num_prompts)
    if not (hasattr(source, "sample") or callable(source)):
        kind = type(source).__name__
        raise ValueError(f"source: expected a task, a sampler or prompts, got {kind}")
    examples = num_examples
    if examples is None:
        if not hasattr(source, "dim"):
            raise ValueError("num_examples: expected a number for a sampler, got None")
        examples = 2 * source.dim
    check_nonnegative_int("num_examples", examples)
    size = num_prompts if batch_size is None else batch_size
    check_positive_int("batch_size", size)
    if num_prompts % size:
        raise ValueError(f"batch_size: expected a divisor of {num_prompts}, got {size}")
    if num_prompts == size:
        return _draw(predictor_prefixes, source, key, examples, size, query_noise)
    errors = jax.lax.map(
        lambda k: _draw(predictor_prefixes, source, k, examples, size, query_noise),
        jax.random.split(key, num_prompts // size),
    )
    return errors.reshape(num_prompts, examples + 1)


def _draw(
    predictor_prefixes: Callable[..., Array],
    source: Any,
    key: PRNGKey,
    num_examples: int,
    size: int,
    query_noise: bool,
) -> Array:
    """Returns errors on one fresh batch."""
    if hasattr(source, "sample"):
        prompt = source.sample(key, num_examples, size).prefixes()
    else:
        prompt = _sampled(source(key, num_examples + 1, size), size, num_examples + 1)
    if query_noise:
        return _errors(predictor_prefixes, prompt, prompt.y_query)
    if not hasattr(source, "evaluate"):
        raise ValueError(
            "query_noise: expected True for a sampler, whose noiseless labels are "
            "unknown, got False"
        )
    target = source.evaluate(prompt.w, prompt.X_query)
    return _errors(predictor_prefixes, prompt, target)


def _sampled(prompt: Any, size: int, num_points: int) -> PrefixPrompt:
    """Returns a sampler's prompts; raises unless they have the expected form."""
    if not isinstance(prompt, PrefixPrompt):
        hint = ": call its prefixes()" if isinstance(prompt, Prompt) else ""
        raise ValueError(
            f"source: expected a sampler that returns a PrefixPrompt, "
            f"got {type(prompt).__name__}{hint}"
        )
    check_shape("y of the sampler's prompts", prompt.y, (size, num_points))
    return prompt


def _errors(
    predictor_prefixes: Callable[..., Array], prompt: PrefixPrompt, target: Array
) -> Array:
    predictions = predictor_prefixes(prompt.X, prompt.y, prompt.X_query)
    check_shape("predictions of predictor_prefixes", predictions, target.shape)
    predictions = real_numbers("predictions of predictor_prefixes", predictions)
    return (jnp.asarray(predictions) - target) ** 2
