"""Gradient flow and descent on the exact risks of linear transformer blocks."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    Check,
    check_choice,
    check_positive_int,
    finite,
    positive,
    scalar,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Float, Int, PRNGKey
from icltheory.regression._block_moments import (
    OF_POPULATION,
    Moments,
    check_dim,
    effective_risk,
    gd_beta_gradient,
    informative,
)
from icltheory.regression.blocks import LSA, LTB, EffectiveParameters
from icltheory.regression.gaps import excess
from icltheory.regression.gradient_blocks import (
    AttentionWeights,
    GDBeta,
    is_balanced,
    is_standard,
)
from icltheory.regression.heads import Heads, drive
from icltheory.regression.landscape import minimizers
from icltheory.regression.one_layer import OneLayer
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearStep
from icltheory.trajectory._descent import PlainRule, check_steps
from icltheory.trajectory._descent import descend as run

__all__ = ["Trajectory", "descend", "flow"]

MODELS = (
    LinearStep,
    GDBeta,
    LSA,
    LTB,
    EffectiveParameters,
    AttentionWeights,
    Heads,
)
SOLVERS = ("auto", "exponential", "explicit", "implicit")


class Trajectory(Record):
    """A model at several times, with its exact risk.

    Args:
        times: Times t; for a descent the step size times the number of steps.
        model: The model at those times: each leaf has a leading axis.
        excess: Risk beyond the least risk of a GD-beta or LTB, as a sum of squares, so
            that it has its own precision near the optimum.
        succeeded: Whether every time was reached; other entries are not finite.
        num_steps: Steps made, rejected ones included.

    Source: Zhang, Wu and Bartlett (2024), Theorem 6.3.
    """

    times: Float[Array, "T"]
    model: Any
    risk: Float[Array, "T"]
    excess: Float[Array, "T"]
    succeeded: Bool[Array, ""]
    num_steps: Int[Array, ""]

    @classmethod
    def of(cls, models, population, num_examples, times, *done) -> "Trajectory":
        """Builds the trajectory of stacked models, with their risks."""
        k = jnp.asarray(num_examples, times.dtype)
        risk = jax.vmap(lambda model: model.exact_risk(population, k))(models)
        over = jax.vmap(lambda model: _excess(model, population, num_examples))
        return cls(times, models, risk + population.noise_var, over(models), *done)


def _excess(model: Any, population: LinearPopulation, num_examples: Any) -> Array:
    """Risk minus the least risk of an LTB, computed without cancellation."""
    if not isinstance(model, GDBeta):
        return excess(model, population, num_examples).total
    # The frozen part outside of the range of the inputs need not be small, and its
    # rounding errors would remain in the excess.
    ends = minimizers(population, num_examples)
    best, P = ends.best, ends.projector
    beta = best.beta + P @ (model.beta - best.beta)
    seen = GDBeta(beta, best.Gamma + P @ (model.Gamma - best.Gamma) @ P)
    return excess(seen, population, num_examples).total


def can_learn(name: str, population: LinearPopulation, given: Any) -> Any:
    """The check of a population for the model beside it."""
    model = given["model"]
    if not isinstance(model, MODELS):
        names = ", ".join(kind.__name__ for kind in MODELS)
        own = ", whose moments(population, num_examples) have a flow of their own"
        got = type(model).__name__ + own * isinstance(model, OneLayer)
        raise ValueError(f"model: expected one of {names}, got {got}")
    step = isinstance(model, LinearStep)
    check_dim(population, len(model.Gamma) if step else model.dim)
    if isinstance(model, AttentionWeights):
        return is_standard(name, population) & is_balanced("model", model)
    return informative(name, population)


_RISES = Check(
    lambda t: (t[0] >= 0) & (t[1:] >= t[:-1]).all(), "increasing times from 0 or later"
)


def increasing(name: str, times: Any, given: Any = None) -> Any:
    """The check of a vector of non-decreasing, non-negative times."""
    if np.ndim(times) != 1 or not len(times):
        got = np.shape(times)
        raise ValueError(f"{name}: expected shape (T,) with T >= 1, got {got}")
    return (_RISES & finite)(name, times)


def usable_times(times: Any, dtype: Any) -> Array:
    """The times of a vector that passed the check, and others made non-decreasing.

    The solver requires it; for traced times that decrease, the result is NaN.
    """
    usable = jnp.nan_to_num(jnp.asarray(times, dtype))
    return jax.lax.cummax(jnp.maximum(usable, 0))


def read_settings(
    solver: str, rtol: Any, atol: Any, max_steps: int, dtype: Any
) -> tuple[Array, Array]:
    """Returns the tolerances as arrays; defaults depend on the dtype."""
    check_choice("solver", solver, SOLVERS)
    check_positive_int("max_steps", max_steps)
    eps = float(jnp.finfo(dtype).eps)
    rtol = max(eps**0.5, 1e-6) if rtol is None else rtol  # 1e-6, 3.5e-4
    atol = eps**0.75 if atol is None else atol  # 1.8e-12, 6.4e-6
    return jnp.asarray(rtol, dtype), jnp.asarray(atol, dtype)


@calculator(
    static=("solver", "max_steps"),
    **OF_POPULATION | {"population": can_learn},
    times=increasing,
    rtol=scalar & positive,
    atol=scalar & positive,
)
def flow(
    model: Any,
    population: LinearPopulation,
    num_examples: Any,
    times: Any,
    *,
    solver: str = "auto",
    rtol: Any = None,
    atol: Any = None,
    max_steps: int = 100_000,
) -> Trajectory:
    r"""Gradient flow on the exact risk of a model.

    .. math:: \frac{d}{dt} \theta_t = -\nabla R(\theta_t), \qquad
        \text{for GD-beta} \quad \dot\beta = -2 Q(\Gamma)(\beta - \beta^*), \quad
        \dot\Gamma = 2 H \Delta H - 2 H \Gamma \Bigl[ \tfrac{M+1}{M} H \Delta H
        + \tfrac{\mathrm{tr}(H \Delta) + \sigma^2}{M} H \Bigr],

    with Delta = Psi + (beta - beta*)(beta - beta*)', and for attention weights

    .. math:: \dot U = 2 u \Lambda^2 - 2 u^2 G \Lambda U \Lambda, \qquad
        \dot u = 2\, \mathrm{tr}\bigl(\Lambda^2 U^\top
        - u\, G \Lambda U \Lambda U^\top\bigr) .

    The flow of a linear step is GD-beta's with beta = 0 held fixed, and known in closed
    form. GD-beta and attention weights are integrated by an exponential Runge-Kutta
    method in eigenbases, in which the flow near the optimum is diagonal: the number of
    steps hardly depends on the condition number of H. Other models are integrated by
    Tsit5 (``"explicit"``) or, where the flow is stiff and the parameters few, by
    Kvaerno5 (``"implicit"``).

    Args:
        model: The start: a LinearStep, GDBeta, LSA, LTB, EffectiveParameters,
            AttentionWeights (for tasks of mean 0 and covariance I) or Heads.
        times: Increasing times from 0 or later.
        solver: ``"auto"``, ``"exponential"``, ``"explicit"`` or ``"implicit"``.
        rtol: Relative tolerance of a step, 1e-6 in float64; ``atol`` is 1.8e-12.
        max_steps: Steps after which it gives up, and says so in ``succeeded``.

    Example:
        >>> population = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> path = flow(start, population, 3, jnp.array([0.0, 1.0, 100.0]))
        >>> [round(float(risk), 3) for risk in path.risk], path.model.Gamma.shape
        ([4.0, 1.142, 1.0], (3, 2, 2))
        >>> path = flow(LinearStep(jnp.zeros((2, 2))), population, 3, jnp.array([9.0]))
        >>> bool(abs(path.model.Gamma[0] - jnp.eye(2) / 2).max() < 1e-6)  # the best
        True
        >>> start = AttentionWeights(jnp.array(1.0), jnp.eye(1))
        >>> one = LinearPopulation.isotropic(1)
        >>> path = flow(start, one, 1, jnp.array([0.0, 25.0]))
        >>> [f"{u:.3f}" for u in path.model.u], [f"{e:.4f}" for e in path.excess]
        (['1.000', '0.577'], ['1.3333', '0.0000'])

    Source: Zhang, Wu and Bartlett (2024), Theorem 6.3 and Appendix G; Zhang, Frei and
    Bartlett (2024), Theorem 4.1.
    """
    from icltheory.regression import _integrate  # it needs diffrax

    dtype, model = _in_one_dtype(model, population)
    times = usable_times(times, dtype)
    rtol, atol = read_settings(solver, rtol, atol, max_steps, dtype)
    if isinstance(model, LinearStep) and solver in ("auto", "exponential"):
        k = jnp.asarray(num_examples, dtype)
        models = _of_step(model, population, k, times)
        done = jnp.isfinite(models.Gamma).all(), jnp.asarray(0)
        return Trajectory.of(models, population, num_examples, times, *done)
    kinds = {GDBeta: _integrate.OfGDBeta, AttentionWeights: _integrate.OfAttention}
    kind = kinds.get(type(model))
    if kind is None and solver == "exponential":
        raise ValueError(
            "solver: expected 'explicit' or 'implicit' for models other than "
            "LinearStep, GDBeta and AttentionWeights, got 'exponential'"
        )
    if solver == "auto":
        solver = "explicit" if kind is None else "exponential"
    settings = {"rtol": rtol, "atol": atol, "max_steps": max_steps, "solver": solver}
    if kind is None or solver != "exponential":
        moments = Moments.of(population, jnp.asarray(num_examples, dtype))
        field = lambda *at: jax.tree.map(jnp.negative, gradient(*at))  # noqa: E731
        models, *done = _integrate.integrate(field, model, moments, times, **settings)
    else:
        at = kind.of(population, num_examples, model)
        states, *done = _integrate.integrate(
            lambda state, at: at.field(state), at.state(model), at, times, **settings
        )
        models = jax.vmap(at.model)(states)
    return Trajectory.of(models, population, num_examples, times, *done)


def _in_one_dtype(model, population) -> tuple[Any, Any]:
    """The dtype that the model and the population share, and the model in it."""
    dtype = jnp.result_type(float, *jax.tree.leaves(model), population.dtype)
    return dtype, jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), model)


def _of_step(step, population, k: Array, times: Array) -> LinearStep:
    """The flow of a linear step: every entry decays by itself in two eigenbases.

    The gradient is 2 H Gamma S - 2 B.
    """
    B, S = drive(population, k)
    (h, V), (s, U) = jnp.linalg.eigh(population.input_cov), jnp.linalg.eigh(S)
    rate = 2 * jnp.outer(jnp.maximum(h, 0), jnp.maximum(s, 0))
    start, pull = V.T @ step.Gamma @ U, 2 * V.T @ B @ U

    def at(t):
        some = jnp.where(rate > 0, rate, 1)
        gained = jnp.where(rate > 0, -jnp.expm1(-some * t) / some, t)
        return jnp.exp(-rate * t) * start + gained * pull

    return jax.vmap(lambda t: LinearStep(V @ at(t) @ U.T))(times)


def gradient(model: Any, moments: Moments) -> Any:
    """The gradient of the risk, with moments computed once.

    Of a gradient step it is in closed form, which takes half the time.
    """
    if hasattr(model, "Gamma"):

        def parts(model):
            return getattr(model, "beta", 0 * moments.mean), model.Gamma

        step, pull = jax.vjp(parts, model)
        return pull(gd_beta_gradient(moments, *step))[0]
    return jax.grad(lambda model: effective_risk(moments, model.effective()))(model)


@calculator(
    compiled=False,
    static=("steps", "batch_size", "record_every"),
    **OF_POPULATION | {"population": can_learn},
    step_size=scalar & positive,
)
def descend(
    model: Any,
    population: LinearPopulation,
    num_examples: Any,
    step_size: Any,
    steps: int,
    *,
    key: PRNGKey | None = None,
    batch_size: int | None = None,
    record_every: int = 1,
) -> Trajectory:
    r"""Gradient descent on the exact risk, or with a key on fresh prompts.

    .. math:: \theta_{k+1} = \theta_k - \eta \nabla R(\theta_k) , \qquad
        \theta_{k+1} = \theta_k - \frac{\eta}{B} \sum_{i=1}^{B} \nabla
        \bigl( f_\theta(X_i, y_i, x_i) - y_i^{query} \bigr)^2 , \qquad t_k = \eta k.

    The first is Euler's method for ``flow``. The second has the same mean step; step k
    draws its prompts from the key folded with k. Risks are exact either way.
    ``succeeded`` says that the end is finite.

    Args:
        model: The start, as for ``flow``.
        steps: A multiple of ``record_every``, the steps between two entries.
        batch_size: Prompts B a step, with a key.

    Example:
        >>> from icltheory.regression import GDBeta
        >>> task = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> path = descend(start, task, 3, 0.1, 200, record_every=100)
        >>> path.times.tolist(), path.excess.round(4).tolist()
        ([0.0, 10.0, 20.0], [3.0, 0.0, 0.0])
        >>> path = descend(start, task, 3, 0.01, 500, key=jax.random.key(0),
        ...                batch_size=32, record_every=500)
        >>> float(path.excess[0]), bool(path.excess[1] < 0.1)
        (3.0, True)

    Source: Zhang, Wu and Bartlett (2024), Section 6 and Theorem 6.3.
    """
    check_steps(steps, record_every)
    dtype, start = _in_one_dtype(model, population)
    drawn = None
    if key is not None or batch_size is not None:
        if key is None:
            raise ValueError("key: expected one with batch_size, got None")
        check_positive_int("batch_size", batch_size)
        check_positive_int("num_examples", num_examples)
        drawn = num_examples, batch_size
    eta, sizes = jnp.asarray(step_size, dtype), (steps, record_every, drawn)
    return _path(start, population, num_examples, eta, key, *sizes)


@functools.partial(jax.jit, static_argnums=(5, 6, 7))
def _path(start, population, num_examples, eta, key, steps, every, drawn) -> Trajectory:
    """Descent on the exact risk, or on prompts ``drawn`` of so many examples each."""
    moments = Moments.of(population, jnp.asarray(num_examples, eta.dtype))

    def loss(model, prompt):
        answers = jax.vmap(model.answer)(prompt.X, prompt.y, prompt.x_query)
        return jnp.mean((answers - prompt.y_query) ** 2)

    def slope(model, step):
        if drawn is None:
            return (), gradient(model, moments)
        prompt = population.sample(jax.random.fold_in(key, step), *drawn)
        return (), jax.grad(loss)(model, prompt)

    models = run(slope, start, PlainRule(eta), steps, every).params
    finite = [jnp.all(jnp.isfinite(leaf[-1])) for leaf in jax.tree.leaves(models)]
    times = eta * jnp.arange(0, steps + 1, every)
    done = jnp.all(jnp.stack(finite)), jnp.asarray(steps)
    return Trajectory.of(models, population, num_examples, times, *done)
