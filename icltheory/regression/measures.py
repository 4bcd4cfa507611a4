"""How good a predictor is: exact risks, estimates, and what is lost to the optimum."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    check_nonnegative_int,
    check_positive_int,
    check_shape,
    count,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, PRNGKey, Scalar
from icltheory.regression._linalg import apply_root
from icltheory.regression.drift import DriftingTasks
from icltheory.regression.population import LinearPopulation, check_linear
from icltheory.regression.predictors import Bayes, LinearInLabels, Predictor
from icltheory.regression.predictors.base import NoClosedForm, predictor_of
from icltheory.regression.sources import PrefixPrompt, Prompt
from icltheory.statistics import Estimate


class Optimum(Record):
    """The best member of a family, its risk, and why it is the best.

    The ``standard_error`` is that of the risk of ``model``, 0 where it is exact; the
    ``certificate`` says what is known of other members.
    """

    model: Any
    risk: Scalar
    certificate: str = eqx.field(static=True)
    standard_error: Scalar | float = 0.0


def risk(predictor: Any, population: Any, num_examples: Any) -> Scalar:
    r"""Exact risk of a predictor, :math:`E\,(\hat y - y)^2` with the query's noise.

    It is known for a linear step, LSA, LTB and their effective parameters, the zero
    predictor, averaging, least squares (for isotropic inputs or N >= d), and for the
    delta rule and gated linear attention also where the tasks drift. Another population
    or another N is the risk under distribution shift or at another length.
    Differentiable in everything; ``num_examples`` (0 or more) may be traced.

    Example:
        >>> from icltheory.regression import predictors
        >>> population = LinearPopulation.isotropic(20, noise_var=0.25)
        >>> float(risk(predictors.Zero(), population, 10))
        20.25
        >>> float(risk(predictors.LeastSquares(), population, 40).round(4))
        0.5132

    Source: Zhang, Wu and Bartlett (2024), Appendices B to D; Garg et al. (2022).
    """
    learner = predictor_of(predictor)
    check_linear("population", population)
    if isinstance(num_examples, range):
        raise ValueError(
            f"num_examples: expected one number, got {num_examples}: a curve is "
            "estimate_risk(predictor, population, range(...))"
        )
    _check_exact(learner, population, num_examples)
    return _risk(learner, population, num_examples)


def _check_exact(learner, population, num_examples):
    if isinstance(population, DriftingTasks) and not learner.of_drifting_tasks:
        raise NoClosedForm(
            f"predictor: expected a DeltaRule or GatedLinearAttention, got "
            f"{type(learner).__name__}: for tasks that drift use "
            "estimate_risk(predictor, source, num_examples, key=...)"
        )
    learner.check_exact(population, num_examples)


@calculator(integers=("num_examples",), num_examples=count(0))
def _risk(predictor, population, num_examples):
    k = jnp.asarray(num_examples, population.dtype)
    return predictor.exact_risk(population, k) + population.noise_var


def estimate_risk(
    predictor: Any,
    source: Any,
    num_examples: int | Sequence[int] | np.ndarray | Array,
    *,
    key: PRNGKey | None = None,
    num_prompts: int = 4096,
    batch_size: int | None = None,
) -> Estimate:
    r"""The best estimate of a risk: exact, exact given the inputs, or simulated.

    .. math:: R = E\,(\hat y - y)^2 , \qquad
        R = E_X\, R(X) , \qquad R \approx \frac1S \sum_s (\hat y_s - y_s)^2 .

    An exact risk is taken where there is one; for a predictor whose weight is linear in
    the labels, on a linear population, only the inputs are sampled, and else prompts.

    Args:
        predictor: A predictor, or any function of one prompt ``(X, y, x_query)``.
        source: A population, another source or shift, or prompts already drawn.
        num_examples: N, or several (``range(41)``) for a curve on the same prompts.
        key: Not needed for an exact risk or prompts already drawn.
        batch_size: Prompts handled at a time, a divisor of S; all if None.

    Example:
        >>> from icltheory.regression import predictors
        >>> population, key = LinearPopulation.isotropic(5, 0.25), jax.random.key(0)
        >>> found = estimate_risk(predictors.Bayes(population), population, 10, key=key)
        >>> bool(abs(found.mean - 0.5248) < 5 * found.standard_error), found.how
        (True, 'exact given the inputs')
        >>> zero = estimate_risk(lambda X, y, x: 0.0, population, range(3), key=key)
        >>> zero.mean.shape
        (3,)

    Source: Garg et al. (2022), Appendix A; Zhang, Wu and Bartlett (2024), Lemma 6.1;
    Bartlett (1933), for the triangular factor of the inputs of one long prompt.
    """
    lengths, single = _lengths(num_examples)
    learner = predictor_of(predictor)
    if isinstance(source, LinearPopulation | DriftingTasks):
        exact = _exact(learner, source, lengths)
        if exact is not None:
            mean = exact[0] if single else exact
            return Estimate(mean, jnp.zeros_like(mean), np.inf, "exact")
    how = "exact given the inputs"
    values = None
    if key is not None and batch_size is None:
        values = _given_inputs(learner, source, lengths, single, key, num_prompts)
    if values is None:
        how = "simulated"
        drawn: dict[str, Any] = {"num_prompts": num_prompts, "batch_size": batch_size}
        drawn |= {"key": key, "prefixes": not single}
        errors = squared_errors(learner, source, max(lengths), **drawn)
        values = errors if single else errors[:, np.asarray(lengths)]
    if not len(values):
        raise ValueError("source: expected at least one prompt, got none")
    return Estimate.of(values, how=how)


def squared_errors(
    predictor: Any,
    source: Any,
    num_examples: int | None = None,
    *,
    key: PRNGKey | None = None,
    num_prompts: int = 4096,
    batch_size: int | None = None,
    prefixes: bool = False,
) -> Array:
    r"""Squared errors of a predictor, prompt by prompt.

    .. math:: e_s = (\hat y_s - y_s)^2 .

    The same key gives the same prompts, so errors of two predictors are paired. The
    arguments are those of :func:`estimate_risk`; prompts already drawn need no others,
    and are asked after all their examples unless ``num_examples`` says fewer.

    Args:
        prefixes: Whether the query is asked after every k = 0, ..., N examples:
            ``(S, N + 1)`` errors in place of ``(S,)``.

    Example:
        >>> from icltheory.regression import predictors, shifts
        >>> rule, shift = predictors.Zero(), shifts.Shift("skewed", 4)
        >>> errors = squared_errors(
        ...     rule, shift, 8, key=jax.random.key(0), num_prompts=6, prefixes=True)
        >>> errors.shape
        (6, 9)

    Source: Garg et al. (2022), Appendix A.
    """
    learner = predictor_of(predictor)
    if isinstance(source, Prompt | PrefixPrompt):
        whole = isinstance(source, Prompt)
        most = source.num_examples if whole else source.num_points - 1
        asked = most if num_examples is None else num_examples
        check_nonnegative_int("num_examples", asked)
        if asked > most:
            expected = f"at most {most}, as in the prompts"
            raise ValueError(f"num_examples: expected {expected}, got {asked}")
        if asked < most and not prefixes:
            source = (source.prefixes() if whole else source).after(asked)
        errors = _squared(learner, source, prefixes)
        return errors[:, : asked + 1] if prefixes else errors
    if key is None or num_examples is None:
        missing = "key" if key is None else "num_examples"
        raise ValueError(f"{missing}: expected one unless prompts are given, got None")
    check_positive_int("num_prompts", num_prompts)
    check_nonnegative_int("num_examples", num_examples)
    size = num_prompts if batch_size is None else batch_size
    check_positive_int("batch_size", size)
    if num_prompts % size:
        raise ValueError(f"batch_size: expected a divisor of {num_prompts}, got {size}")
    compiled = isinstance(source, Record)  # a function is no argument of a program
    if num_prompts != size:
        run = _batches if compiled else _in_batches
        sizes = num_examples, num_prompts, size, prefixes
        return run(learner, source, key, *sizes)
    draw = _drawn if compiled else draw_prompts
    return _squared(learner, draw(source, key, num_examples, size, prefixes), prefixes)


def _lengths(num_examples) -> tuple[list[int], bool]:
    single = np.ndim(num_examples) == 0
    lengths = [num_examples] if single else np.asarray(num_examples).tolist()
    if not lengths:
        raise ValueError("num_examples: expected at least one, got none")
    for length in lengths:
        check_nonnegative_int("num_examples", length)
    return [int(length) for length in lengths], single


def _exact(learner: Predictor, population: Any, lengths) -> Array | None:
    """Exact risks at all lengths, or ``None`` where there is no closed form."""
    try:
        for length in (min(lengths), max(lengths)):
            _check_exact(learner, population, length)
    except NoClosedForm:
        return None
    return jax.vmap(lambda k: _risk(learner, population, k))(jnp.array(lengths))


def _given_inputs(learner, population, lengths, single, key, num_prompts):
    """Risks given sampled inputs, or ``None`` where they are not known."""
    drifts = isinstance(population, DriftingTasks)
    known = isinstance(population, LinearPopulation) and hasattr(learner, "risk_given")
    if not known and not (drifts and isinstance(learner, LinearInLabels)):
        return None
    check_positive_int("num_prompts", num_prompts)
    at = tuple(lengths)
    if isinstance(learner, Bayes) and learner.knows(population):
        if single and not drifts:  # of N examples of one task d rows say all
            return _posterior(learner, key, lengths[0], num_prompts)
        found = _posteriors(learner, key, max(lengths), num_prompts)[:, np.array(at)]
    else:
        found = _averaged(learner, population, key, at, num_prompts)
    return found[:, 0] if single else found


@calculator(static=("lengths", "num_prompts"))
def _averaged(learner, population, key, lengths, num_prompts):
    X = population.sample_inputs(key, max(lengths), num_prompts)
    given = [_over(learner.risk_given, population, X[:, :k]) for k in lengths]
    return jnp.stack(given, axis=1)


@calculator(static=("num_examples", "num_prompts"))
def _posteriors(learner, key, num_examples, num_prompts):
    population = learner.population
    X = population.sample_inputs(key, num_examples + 1, num_prompts)
    return _over(learner.risks_given, population, X)


@calculator(static=("num_examples", "num_prompts"))
def _posterior(learner, key, num_examples, num_prompts):
    """Draws at most d rows with the same distribution of Z'Z as N normal rows.

    For N > d it is the triangular factor of Z = Q R, which is independent of Q:
    R_ii^2 is chi-square with N - i + 1 degrees, and the entries above are normal.
    """
    population, N = learner.population, num_examples
    population.check_drawn()
    dim, dtype = population.dim, population.dtype
    normal_key, scale_key = jax.random.split(key)
    Z = jax.random.normal(normal_key, (num_prompts, min(N, dim), dim), dtype)
    if dim < N:
        degrees = jnp.arange(N, N - dim, -1, dtype=dtype)[None]
        squares = jax.random.chisquare(scale_key, degrees, (num_prompts, dim), dtype)
        eye = jnp.eye(dim, dtype=dtype)[None]
        Z = jnp.triu(Z, 1) + jnp.sqrt(squares)[:, :, None] * eye
    return _over(learner.risk_given, population, apply_root(population.input_root, Z))


def _over(given, population, X):
    """Risks given each of the inputs, with the query's noise."""
    return jax.vmap(lambda X: given(population, X))(X) + population.noise_var


def _in_batches(learner, source, key, num_examples, num_prompts, size, prefixes):
    def one_batch(key):
        prompt = draw_prompts(source, key, num_examples, size, prefixes)
        return _errors(learner, prompt, prefixes)

    errors = jax.lax.map(one_batch, jax.random.split(key, num_prompts // size))
    return errors.reshape(num_prompts, *errors.shape[2:])


def draw_prompts(source, key, num_examples, size, prefixes) -> Any:
    """Fresh prompts of a source, a shift, or any sampler of prefix prompts."""
    if hasattr(source, "sample"):
        prompt: Any = source.sample(key, num_examples, size)
        if not isinstance(prompt, Record):
            kind = type(prompt).__name__
            raise ValueError(f"source.sample: expected a Prompt, got a {kind}")
        return prompt.prefixes() if prefixes else prompt
    if not callable(source):
        got = type(source).__name__
        raise ValueError(f"source: expected a source, a sampler or prompts, got {got}")
    prompt = source(key, num_examples + 1, size)
    if not isinstance(prompt, PrefixPrompt):
        hint = ": call its prefixes()" if isinstance(prompt, Prompt) else ""
        raise ValueError(
            "source: expected a sampler that returns a PrefixPrompt, got "
            f"{type(prompt).__name__}{hint}"
        )
    check_shape("y of the sampler's prompts", prompt.y, (size, num_examples + 1))
    return prompt


def _errors(learner, prompt, prefixes):
    """Squared errors on prompts that are drawn."""
    if prefixes:
        asked = prompt.prefixes() if isinstance(prompt, Prompt) else prompt
        answers = jax.vmap(learner.answers)(asked.X, asked.y, asked.X_query)
        return (answers - asked.y_query) ** 2
    if isinstance(prompt, PrefixPrompt):
        prompt = prompt.after(prompt.num_points - 1)
    answers = jax.vmap(learner.answer)(prompt.X, prompt.y, prompt.x_query)
    return (answers - prompt.y_query) ** 2


_SIZES = ("num_examples", "size", "prefixes")
_drawn = calculator(static=_SIZES)(draw_prompts)
_batches = calculator(static=(*_SIZES, "num_prompts"))(_in_batches)
_squared = calculator(static=("prefixes",))(_errors)
