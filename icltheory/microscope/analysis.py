"""Which algorithm a model runs: distances to the best member of every family."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    check_integer,
    check_key,
    check_nonnegative_int,
    open_unit,
)
from icltheory._typing import PRNGKey
from icltheory.microscope import models
from icltheory.microscope._tuning import tune
from icltheory.microscope.families import Family, families_for, fixed
from icltheory.microscope.intervals import (
    SkewedEstimate,
    explained_share,
    mixture_weights,
    ratio,
    weight_intervals,
)
from icltheory.microscope.linearity import linearity_in_labels, linearity_in_query
from icltheory.microscope.records import Analysis, Candidate, Identification
from icltheory.regression.predictors.base import predictor_of
from icltheory.statistics import Interval

_FEWEST = 8  # prompts, of which half are for tuning
# A distance below this many roundings of the variance of the answers is one of 0.
_ROUNDINGS = 100
# Of candidates that are as close as the closest, the distances differ by no more than
# this share of the variance of the answers.
_ALIKE = 0.01


def identify(
    model: Any,
    source: Any,
    candidates: Any = None,
    *,
    num_examples: int | Sequence[int],
    key: PRNGKey | None = None,
    num_prompts: int = 2000,
    batch_size: int = 256,
    level: float | int = 0.95,
) -> Identification:
    r"""Finds which algorithm a model runs, by distances to the best of each family.

    .. math:: \min_\theta E\, (f - g_\theta)^2 \quad \text{per family}, \qquad
        \min_{w \in \Delta} E\, \Bigl(f - \sum_j w_j g_j\Bigr)^2 .

    Parameters are tuned on the first half of the prompts; distances and the weights of
    the mixture are judged on the second. The share that the mixture leaves has weights
    of the first half.

    Args:
        model: A predictor, a JAX function of one prompt (X (N, d), y (N,), x (d,)), or
            a :class:`NumpyModel` or :class:`TorchModel`.
        source: A population, another source or shift, or prompts already drawn.
        candidates: Families, or predictors of JAX and families by name;
            :func:`~icltheory.microscope.families_for` the source if None.
        num_examples: N, or several for a curve on the same prompts.
        key: Not needed for prompts already drawn.

    Example:
        >>> from icltheory.regression import LinearPopulation, Ridge
        >>> source, key = LinearPopulation.isotropic(3, 0.25), jax.random.key(0)
        >>> families = {"ridge": Ridge(0.25), "ridge 2": Ridge(2.0)}
        >>> found = identify(
        ...     Ridge(0.25), source, families, num_examples=5, key=key, num_prompts=64)
        >>> found.best.name, round(found.best.weight, 6)
        ('ridge', 1.0)

    Source: Akyurek et al. (2023), Section 4; Raventos et al. (2023); Fu et al. (2024).
    """
    check_integer("num_prompts", num_prompts, _FEWEST)
    open_unit("level", level)
    lengths = np.atleast_1d(np.asarray(num_examples)).tolist()
    if not lengths:
        raise ValueError("num_examples: expected at least one, got none")
    for length in lengths:
        check_nonnegative_int("num_examples", length)
    if not isinstance(source, models.PrefixPrompt | models.Prompt):
        check_key("key", key)
    families = _families(candidates, source)
    drawn = models.draw(source, max(lengths), num_prompts, key)
    if len(drawn.y) < _FEWEST:
        expected = f"at least {_FEWEST} prompts"
        raise ValueError(f"source: expected {expected}, got {len(drawn.y)}")
    found = []
    for length in lengths:
        prompt = drawn.after(length)
        response = models.responses(model, prompt, batch_size=batch_size)
        found.append(analyse(response, prompt, families, level))
    return Identification(tuple(found))


def analyse(
    response: models.Responses, prompt: Any, families: Sequence[Family], level: float
) -> Analysis:
    """Compares answers that are known with every family."""
    X, y, x = map(jnp.asarray, (prompt.X, prompt.y, prompt.x_query))
    f = jnp.asarray(response.answers, X.dtype)
    half, num_examples = len(f) // 2, X.shape[1]
    tuned = [jax.device_get(tune(row, f, X, y, x, half)) for row in families]
    answers = np.asarray(response.answers, float)
    errors = np.stack([t.answers.astype(float) - answers for t in tuned], axis=1)
    _check_finite(families, answers, errors)
    judged, own = errors[half:], answers[half:]
    # The mean of equal answers may be rounded.
    variance = float(np.var(own)) if np.ptp(own) > 0 else 0.0
    rounding = _ROUNDINGS * float(jnp.finfo(X.dtype).eps) * variance
    kept = _distinct(errors, rounding)
    weights, intervals = _mixed(judged, kept, level)
    first = mixture_weights(errors[:half][:, kept])
    unexplained = explained_share(judged[:, kept] @ first, own)
    nearest = judged[:, np.argmin(np.mean(judged**2, axis=0))] ** 2
    size = np.sum(np.asarray(response.query_weights, float)[half:] ** 2, axis=1)
    listed = []
    for j, (family, t) in enumerate(zip(families, tuned, strict=True)):
        count = family.counts[int(t.index)]
        gap = t.query_weights.astype(float) - np.asarray(response.query_weights, float)
        listed.append(
            Candidate(
                family.name,
                family.described(t.values, count),
                family.member(t.values, count),
                SkewedEstimate.of(judged[:, j] ** 2),
                explained_share(judged[:, j], own),
                SkewedEstimate.of(judged[:, j] ** 2 - nearest),
                ratio(np.sum(gap[half:] ** 2, axis=1), size),
                float(weights[j]),
                intervals[j],
            )
        )
    return Analysis(
        num_examples,
        tuple(sorted(listed, key=lambda c: float(c.distance.mean))),
        _closest(families, listed, rounding, variance, level),
        unexplained,
        linearity_in_labels(response, y),
        linearity_in_query(response, x),
        variance,
        rounding,
        len(own),
        float(level),
    )


def _families(candidates: Any, source: Any) -> tuple[Family, ...]:
    if candidates is None:
        return families_for(source)
    if isinstance(candidates, Mapping):
        for name, row in candidates.items():
            if isinstance(row, models.NumpyModel | models.TorchModel):
                expected = "families or predictors of JAX, which can be differentiated"
                got = f"a {type(row).__name__} as {name!r}"
                raise ValueError(f"candidates: expected {expected}, got {got}")
        rows = [
            dataclasses.replace(row, name=name)
            if isinstance(row, Family)
            else fixed(name, predictor_of(row))
            for name, row in candidates.items()
        ]
    else:
        rows = list(candidates)
    if not rows or not all(isinstance(row, Family) for row in rows):
        raise ValueError(
            "candidates: expected families, or predictors by name, got "
            f"{type(candidates).__name__}"
        )
    names = [row.name for row in rows]
    if len(set(names)) < len(names):
        raise ValueError(f"candidates: expected distinct names, got {names}")
    return tuple(rows)


def _check_finite(families, answers, errors) -> None:
    if not np.isfinite(answers).all():
        raise ValueError("model: expected finite answers, got others")
    for row, own in zip(families, errors.T, strict=True):
        if not np.isfinite(own).all():
            raise ValueError(f"candidates: expected finite answers of {row.name}")


def _distinct(errors: np.ndarray, rounding: float) -> list[int]:
    """Candidates whose answers are not those of an earlier one, up to rounding."""
    kept: list[int] = []
    for j in range(errors.shape[1]):
        gaps = np.mean((errors[:, kept] - errors[:, [j]]) ** 2, axis=0)
        if not kept or gaps.min() > rounding:
            kept.append(j)
    return kept


def _mixed(errors: np.ndarray, kept: list[int], level: float):
    """Weights and intervals of all candidates; those not kept have none."""
    weights, intervals = np.zeros(errors.shape[1]), []
    weights[kept] = mixture_weights(errors[:, kept])
    found = iter(weight_intervals(errors[:, kept], weights[kept], level))
    nothing = Interval(0.0, 0.0)
    for j in range(errors.shape[1]):
        intervals.append(next(found) if j in kept else nothing)
    return weights, intervals


def _closest(families, listed, rounding, variance, level) -> tuple[str, ...]:
    """Names of the candidates as close as the closest, from simple to general."""
    least = min(float(c.distance.mean) for c in listed)
    tied = []
    for row, c in zip(families, listed, strict=True):
        gap = float(c.distance.mean) - least
        alike = c.farther.interval(level).low <= 0 and gap <= _ALIKE * variance
        if gap <= rounding or (alike and least > rounding):
            size = len(row.parameters) + (len(row.counts) > 1)
            tied.append((size, row.name))
    return tuple(name for *_, name in sorted(tied, key=lambda one: one[0]))
