"""How linear a model is, and what follows: exact risks and the Bayes gap."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from icltheory._core import Record
from icltheory._typing import PRNGKey
from icltheory.microscope import models
from icltheory.microscope.intervals import SkewedEstimate, ratio
from icltheory.regression import Bayes, DiscreteMMSE, LinearPopulation, TaskPool
from icltheory.statistics import Estimate


def linearity_in_labels(response: models.Responses, y: Any) -> Estimate:
    r"""How linear the answers are in the labels: 1 for attention on x alone.

    .. math:: 1 - \frac{E (f - f_0 - \langle a, y\rangle)^2}{E (f - f_0)^2}, \qquad
        f_0 = f(X, 0, x), \quad a = \partial f / \partial y .

    It is 1 for gradient descent, ridge and kernels, less for the posterior mean of a
    pool and for the Lasso, and may be negative. NaN where labels change nothing.

    Example:
        >>> ones = np.ones(2)
        >>> response = models.Responses(4 * ones, 0 * ones, ones, ones[:, None], 0)
        >>> linearity_in_labels(response, 2 * ones[:, None]).mean
        0.75
    """
    return _linearity(
        response.answers, response.without_labels, response.label_weights, y
    )


def linearity_in_query(response: models.Responses, x_query: Any) -> Estimate:
    r"""How linear the answers are in the query.

    .. math:: 1 - \frac{E (f - f(X, y, 0) - \langle b, x\rangle)^2}
        {E (f - f(X, y, 0))^2}, \qquad b = \partial f / \partial x .

    Example:
        >>> ones = np.ones(2)
        >>> response = models.Responses(3 * ones, ones, ones, 0, ones[:, None])
        >>> linearity_in_query(response, ones[:, None]).mean
        0.75
    """
    return _linearity(
        response.answers, response.at_origin, response.query_weights, x_query
    )


def _linearity(answers, start, weights, at) -> Estimate:
    values = (np.asarray(v, float) for v in (answers, start, weights, at))
    f, f_0, slope, at = values
    missed = (f - f_0 - np.sum(slope * at, axis=1)) ** 2
    share = ratio(missed, (f - f_0) ** 2)
    value, error = 1 - share.mean, share.standard_error
    return SkewedEstimate(value, error, share.dof, "", -share.skewness)


class RiskGivenInputs(Record):
    """The exact risk of a response linear in y, averaged over sampled inputs.

    Args:
        risk: All parts, with the query's noise.
        bias: (x - X'a)'Psi(x - X'a), of tasks that vary about their mean.
        mean: (<beta*, x - X'a> - f_0)^2, of the mean task.
        variance: sigma^2 |a|^2, of the noise of the labels.
        noise: sigma^2 of the query's label.
    """

    risk: Estimate
    bias: Estimate
    mean: Estimate
    variance: Estimate
    noise: float


def risk_given_inputs(
    response: models.Responses, prompt: Any, population: LinearPopulation
) -> RiskGivenInputs:
    r"""Exact risk given the inputs of a model whose answer is affine in the labels.

    .. math:: E[(f - y)^2 | X, x] = (x - X^\top a)^\top \Psi (x - X^\top a)
        + (\langle \beta^*, x - X^\top a\rangle - f_0)^2 + \sigma^2 |a|^2 + \sigma^2 .

    It has several times less variance than squared errors. Only as right as the model
    is linear: look at :func:`linearity_in_labels` first.

    Example:
        >>> population = LinearPopulation.isotropic(2, 0.25)
        >>> import jax
        >>> prompt = population.sample(jax.random.key(0), 4, 100)
        >>> zero = models.responses(lambda X, y, x: 0.0, prompt)
        >>> risk = risk_given_inputs(zero, prompt, population)
        >>> bool(abs(risk.risk.mean - 2.25) < 4 * risk.risk.standard_error)
        True
    """
    if not isinstance(population, LinearPopulation):
        got = type(population).__name__
        raise ValueError(f"population: expected a LinearPopulation, got {got}")
    a, f_0, X, x, Psi, beta = (
        np.asarray(v, float)
        for v in (
            response.label_weights,
            response.without_labels,
            prompt.X,
            prompt.x_query,
            population.task_cov,
            population.task_mean,
        )
    )
    s2 = float(population.noise_var)
    missed = x - np.einsum("snd,sn->sd", X, a)
    bias = np.einsum("sd,de,se->s", missed, Psi, missed)
    mean, variance = (missed @ beta - f_0) ** 2, s2 * np.sum(a**2, axis=1)
    total = Estimate.of(bias + mean + variance + s2, how="exact given the inputs")
    parts = Estimate.of(bias), Estimate.of(mean), Estimate.of(variance)
    return RiskGivenInputs(total, *parts, s2)


def bayes_gap(
    model: Any, source: Any, *, num_examples: int, key: PRNGKey, num_prompts: int = 2000
) -> Estimate:
    r"""What a model loses to the Bayes predictor, by the distance of their answers.

    .. math:: R(f) - R_{Bayes} = E\, (f - f_{Bayes})^2 ,

    exact for any function of the prompt, and without the noise of the labels. The
    source is a linear population, or a pool of tasks of one.

    Example:
        >>> import jax
        >>> population = LinearPopulation.isotropic(2, 0.25)
        >>> gap = bayes_gap(Bayes(population), population, num_examples=4,
        ...     key=jax.random.key(0), num_prompts=8)
        >>> bool(gap.mean < 1e-10)
        True
    """
    if isinstance(source, LinearPopulation):
        best = Bayes(source)
    elif isinstance(source, TaskPool) and isinstance(source.task, LinearPopulation):
        best = DiscreteMMSE(source.pool, source.task.noise_var)
    else:
        raise ValueError(
            "source: expected a LinearPopulation or a TaskPool of one, whose Bayes "
            f"predictor is known, got {type(source).__name__}"
        )
    drawn = models.draw(source, num_examples, num_prompts, key)
    prompt = drawn.after(num_examples)
    own, other = (models.responses(m, prompt).answers for m in (model, best))
    return SkewedEstimate.of(
        np.asarray(jnp.asarray(own) - jnp.asarray(other), float) ** 2
    )
