"""How good a learner of patterns is: its errors, margins and attention."""

from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_nonnegative_int, check_positive_int
from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Float, PRNGKey, PyTree
from icltheory.layered import forward
from icltheory.patterns.model import check_width
from icltheory.patterns.task import PatternPrompt, PatternTask
from icltheory.patterns.theorems import hinge
from icltheory.regression.predictors.base import predictor_of
from icltheory.statistics import Estimate


class Errors(Record):
    """Mean hinge loss, that of the theorems, and share of prompts without z F > 0."""

    hinge: Estimate
    zero_one: Estimate


def error(
    predictor: Any,
    task: PatternTask,
    num_examples: int,
    *,
    key: PRNGKey,
    num_prompts: int = 4096,
) -> Errors:
    r"""Hinge and 0-1 error of any learner on prompts of a task.

    .. math:: E\, [1 - z F]_+ , \qquad P(z F \le 0) .

    The learner is a predictor, such as :class:`PatternLearner`, or a function of one
    prompt ``(X, y, x_query)``. The same key gives two learners the same prompts.

    Example:
        >>> task, key = PatternTask(4, 4, 2.0, relevant_fraction=1.0), jax.random.key(0)
        >>> def nearest(X, y, x_query):
        ...     return y[jnp.argmax(X @ x_query)]
        >>> found = error(nearest, task, 4, key=key, num_prompts=4000)
        >>> bool(abs(found.zero_one.mean - 0.5**4) < 0.02)  # the chance of a miss
        True

    Source: Li et al. (2024), equations (9) and (10).
    """
    check_nonnegative_int("num_examples", num_examples)
    check_positive_int("num_prompts", num_prompts)
    learner = predictor_of(predictor)
    margins = _margins(learner, task, key, num_examples, num_prompts)
    wrong = (~(margins > 0)).astype(margins.dtype)
    values = hinge(margins), wrong
    return Errors(*(Estimate.of(value, how="simulated") for value in values))


@calculator(static=("num_examples", "num_prompts"))
def _margins(learner, task, key, num_examples, num_prompts):
    prompt = task.sample(key, num_examples, num_prompts)
    F = jax.vmap(learner.answer)(prompt.X, prompt.y, prompt.x_query)
    return prompt.z * F


class Scores(Record):
    """Margins and attention of a model on a batch of prompts.

    Args:
        margins: z F of each prompt.
        masses: Attention on contexts that share the query's pattern, in every layer.
        agreements: Attention-weighted labels of the contexts times z, in every layer:
            +1 where all attention is on the query's label.
        missed: Whether no context shares the query's pattern.
        feasible: Whether the patterns of the prompt exist as asked for.

    Example:
        >>> no = jnp.zeros(2, bool)
        >>> full = jnp.ones((1, 2))
        >>> got = Scores(jnp.array([0.5, 2.0]), full, full, no, ~no)
        >>> float(got.hinge), float(got.error), float(got.margin)
        (0.25, 0.0, 1.25)

    Source: Li et al. (2024), equations (9) and (10).
    """

    margins: Float[Array, "*S B"]
    masses: Float[Array, "*S L B"]
    agreements: Float[Array, "*S L B"]
    missed: Bool[Array, "*S B"]
    feasible: Bool[Array, "*S B"]

    @property
    def hinge(self) -> Float[Array, "*S"]:
        """Mean hinge loss, the generalisation error of the theorems."""
        return jnp.mean(hinge(self.margins), axis=-1)

    @property
    def error(self) -> Float[Array, "*S"]:
        """0-1 error: share of prompts without z F > 0; NaN counts as an error."""
        return jnp.mean((~(self.margins > 0)).astype(self.margins.dtype), axis=-1)

    @property
    def margin(self) -> Float[Array, "*S"]:
        """Mean margin."""
        return jnp.mean(self.margins, axis=-1)

    @property
    def attention_mass(self) -> Float[Array, "*S L"]:
        """Mean attention to contexts that share the query's pattern (Proposition 1)."""
        return jnp.mean(self.masses, axis=-1)

    @property
    def agreement(self) -> Float[Array, "*S L"]:
        """Mean agreement A of the labels attended to, for :func:`gain_ratio`."""
        return jnp.mean(self.agreements, axis=-1)

    @property
    def miss_rate(self) -> Float[Array, "*S"]:
        """Share of prompts without a context that shares the query's pattern."""
        return jnp.mean(self.missed.astype(self.margins.dtype), axis=-1)


def scores(model: Any, params: PyTree, prompt: PatternPrompt) -> Scores:
    """Margins and attention of a model of this package on a batch of prompts.

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(task, key=jax.random.key(0))
        >>> got = scores(model, params, task.sample(jax.random.key(1), 20, 5))
        >>> got.margins.shape, got.masses.shape
        ((5,), (1, 5))

    Source: Li et al. (2024), Proposition 1 and Figure 9.
    """
    check_pattern_model(model)
    check_width(params, prompt.P.shape[-1], "prompt")
    weights = model.attention(params, prompt)
    masses = jnp.sum(jnp.where(prompt.same[None], weights, 0), axis=-1)
    agreements = jnp.sum(weights * prompt.y[None], axis=-1) * prompt.z[None]
    margins = prompt.z * forward(model, params, prompt)
    return Scores(margins, masses, agreements, prompt.missed, prompt.feasible)


def check_pattern_model(model: Any) -> None:
    """Raises unless a model has ``attention`` and ``fixed``."""
    if not (hasattr(model, "attention") and hasattr(model, "fixed")):
        expected = "a PatternTransformer or a DeepPatternTransformer"
        kind = type(model).__name__
        raise ValueError(f"model: expected {expected}, got {kind}")
