"""The population of linear regression tasks, with exact theory."""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    Check,
    check_choice,
    check_positive_int,
    check_shape,
    checked,
    covariance,
    finite,
    is_tracer,
    nonnegative,
    real,
    scalar,
)
from icltheory._core import where_valid
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import (
    Matrix,
    Number,
    Vector,
    apply_root,
    as_floats,
    covariance_root,
    default_dtype,
    einsum,
    is_zero,
    symmetric_root,
)
from icltheory.regression.sources import NoisyLinear

_MOMENTS = "input_cov", "task_mean", "task_cov", "noise_var"
_KURTOSIS = finite & Check(lambda x: x >= 1, "a kurtosis >= 1")
_DIAGONAL = Check(
    lambda off: off <= 1e-6,
    "(d, d, d, d), or entries off the diagonal of input_cov <= 1e-6 of the largest",
)
_SYMMETRIC = Check(
    lambda gap: gap <= 1e-6, "symmetry in all axes (relative differences <= 1e-6)"
)
_SQUARES = Check(lambda least: least >= -1e-6, "E x_i^2 x_j^2 >= 0")


class LinearPopulation(NoisyLinear):
    r"""Linear regression tasks with Gaussian inputs, prior and noise.

    .. math:: x \sim N(0, H), \quad w \sim N(\beta^*, \Psi), \quad
        y = \langle w, x\rangle + \epsilon, \quad \epsilon \sim N(0, \sigma^2)

    for the examples and for the query alike; a mean ``None`` is 0, a Psi ``None`` is I.
    H and Psi may be singular. Their symmetric roots are found once; of a covariance
    that is known to be diagonal only the diagonal is kept.

    Args:
        fourth_moment: Of inputs that are not Gaussian: E x_i x_j x_k x_l, ``(d, d, d,
            d)``, or the kurtosis E x_i^4 / H_ii^2 of independent coordinates, a number
            or ``(d,)``, for a diagonal H. It is what the risks and optima of one linear
            step need; such inputs cannot be drawn.

    Example:
        >>> population = LinearPopulation.isotropic(2, mean=jnp.ones(2))
        >>> prompt = population.sample(jax.random.key(0), 3, 4)
        >>> prompt.X.shape, prompt.y.shape
        ((4, 3, 2), (4, 3))
        >>> float(population.signal)  # E <w, x>^2
        4.0

    Source: Zhang, Wu and Bartlett (2024), Section 3.
    """

    input_cov: Float[Array, "d d"]
    task_mean: Float[Array, " d"]
    task_cov: Float[Array, "d d"]
    noise_var: Scalar
    fourth_moment: Any
    input_root: Array = eqx.field(repr=False)
    task_root: Array = eqx.field(repr=False)
    noiseless: bool = eqx.field(static=True, repr=False)

    def __init__(
        self,
        input_cov: Matrix,
        task_mean: Vector | None = None,
        task_cov: Matrix | None = None,
        noise_var: Number = 0.0,
        *,
        fourth_moment: Any = None,
    ):
        H = real("input_cov", input_cov)
        check_shape("input_cov", H, ("d", "d"))
        dim, kind = np.shape(H)[0], jnp.result_type(H)
        check_positive_int("dim", dim)
        mean = np.zeros(dim, kind) if task_mean is None else task_mean
        Psi = np.eye(dim, dtype=kind) if task_cov is None else task_cov
        mean, Psi = real("task_mean", mean), real("task_cov", Psi)
        check_shape("task_mean", mean, (dim,))
        check_shape("task_cov", Psi, (dim, dim))
        self.noiseless = is_zero(noise_var)  # also in jit, which traces what it makes
        values = as_floats(H, mean, Psi, real("noise_var", noise_var))
        rules = covariance, finite, covariance, scalar & nonnegative
        for name, value, rule in zip(_MOMENTS, values, rules, strict=True):
            setattr(self, name, checked(name, value, rule))
        self.fourth_moment = None
        if fourth_moment is not None:
            given = checked_fourth_moment(fourth_moment, self.input_cov)
            self.fourth_moment, self.input_cov = given
        self.input_root = covariance_root(self.input_cov)
        self.task_root = covariance_root(self.task_cov)

    @classmethod
    def isotropic(
        cls,
        dim: int,
        noise_var: Number = 0.0,
        *,
        mean: Vector | None = None,
        dtype: Any = None,
    ) -> "LinearPopulation":
        """Garg's x ~ N(0, I) and w ~ N(mean, I); ``None`` is mean 0, JAX's dtype."""
        check_positive_int("dim", dim)
        dtype = default_dtype(dtype)
        eye = jnp.asarray(np.eye(dim, dtype=dtype))
        mean = np.zeros(dim, dtype) if mean is None else real("mean", mean)
        noise_var = jnp.asarray(real("noise_var", noise_var), dtype)
        return cls(eye, jnp.asarray(mean, dtype), eye, noise_var)

    def with_(self, **changes: Any) -> "LinearPopulation":
        """The population with some of its moments changed."""
        names = *_MOMENTS, "fourth_moment"
        for name in changes:
            check_choice("with_", name, names)
        return LinearPopulation(**{n: getattr(self, n) for n in names} | changes)

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return np.shape(self.task_mean)[-1]

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the moments."""
        return jnp.result_type(self.task_mean)

    @property
    def second_moment(self) -> Float[Array, "d d"]:
        """E w w' = Psi + beta* beta*'."""
        return self.task_cov + self.task_mean[:, None] * self.task_mean[None]

    @property
    def signal(self) -> Scalar:
        """E <w, x>^2 = tr(H E w w'), the risk of predicting 0 without noise."""
        return einsum("ij,ji->", self.input_cov, self.second_moment)

    def check_drawn(self) -> None:
        """Raises where only moments of the inputs are known, so that none are drawn."""
        if self.fourth_moment is not None:
            raise ValueError(
                "fourth_moment: expected None, Gaussian inputs, to draw prompts, got "
                "moments of inputs whose distribution is not known"
            )

    def sample_inputs(self, key, num_points, num_prompts) -> Float[Array, "B P d"]:
        """Draws inputs from N(0, H)."""
        self.check_drawn()
        z = jax.random.normal(key, (num_prompts, num_points, self.dim), self.dtype)
        return apply_root(self.input_root, z)

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> Array:
        """Draws w from N(beta*, Psi); ``active_dims`` is ignored."""
        z = jax.random.normal(key, (num_prompts, self.dim), self.dtype)
        return jnp.asarray(self.task_mean)[None] + apply_root(self.task_root, z)


def check_linear(name: str, population: Any) -> None:
    """Raises unless the exact theory knows the source."""
    if isinstance(population, LinearPopulation | TaskPerExample):
        return
    kind = population if isinstance(population, type) else type(population)
    hint = "other sources have estimate_risk(predictor, source, num_examples, key=...)"
    if not hasattr(kind, "sample"):
        hint = "the order is (what, population, num_examples)"
    raise ValueError(
        f"{name}: expected a LinearPopulation, got {kind.__name__}: {hint}"
    )


class TaskPerExample(NoisyLinear):
    """Prompts whose examples have tasks of their own, all of one population."""

    population: eqx.AbstractVar[LinearPopulation]

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return self.population.dim

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the population."""
        return self.population.dtype

    @property
    def noise_var(self) -> Scalar:
        """Noise variance of the labels."""
        return self.population.noise_var

    def sample_inputs(self, key, num_points, num_prompts) -> Float[Array, "B P d"]:
        """Draws inputs of the population."""
        return self.population.sample_inputs(key, num_points, num_prompts)

    def evaluate(self, w, X) -> Float[Array, "B P"]:
        return jnp.sum(w * X, axis=-1)


class CorrelatedTasks(TaskPerExample):
    r"""Examples with tasks of their own: drift, repeated or contradicting examples.

    .. math:: y_i = \langle w_i, x_i\rangle + \epsilon_i, \qquad
        w_i = \beta^* + \Psi^{1/2} z_i, \qquad E z_i z_j^\top = R_{ij} I ,

    with R the ``correlation`` of the N examples and, last, the query,
    ``(N + 1, N + 1)``.

    Example:
        >>> age = jnp.abs(jnp.subtract.outer(jnp.arange(4), jnp.arange(4)))
        >>> drift = CorrelatedTasks(LinearPopulation.isotropic(2), 0.9**age)
        >>> drift.sample(jax.random.key(0), 3, 5).y.shape
        (5, 3)

    Source: Li, Tarzanagh, Rawat, Fazel and Oymak (2025).
    """

    population: LinearPopulation
    correlation: Any

    def __post_init__(self):
        (R,) = as_floats(real("correlation", self.correlation))
        check_shape("correlation", R, ("n", "n"))
        R = checked("correlation", R, covariance)
        self.correlation = R.astype(self.population.dtype)

    def sample_inputs(self, key, num_points, num_prompts) -> Float[Array, "B P d"]:
        if num_points != len(self.correlation):
            got, wanted = num_points - 1, len(self.correlation) - 1
            raise ValueError(f"num_examples: expected {wanted}, got {got}")
        return super().sample_inputs(key, num_points, num_prompts)

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> Array:
        shape = (num_prompts, len(self.correlation), self.dim)
        z = jax.random.normal(key, shape, self.dtype)
        z = einsum("ij,bjd->bid", symmetric_root(self.correlation), z)
        population = self.population
        return population.task_mean[None, None] + apply_root(population.task_root, z)


def label_moment(population: Any, second: Array, k: Array) -> Array:
    """E [X'r r'X] / k for residuals r = X v + noise with E v v' = ``second``.

    It is E [x x' M x x'] + (k - 1) H M H + sigma^2 H with M = ``second``.
    """
    H, fourth = population.input_cov, population.fourth_moment
    HMH = einsum("ij,jk,kl->il", H, second, H)
    if fourth is not None and jnp.ndim(fourth) == 4:
        own = einsum("ijkl,kl->ij", fourth, second)
        return own + (k - 1) * HMH + population.noise_var * H
    tau = einsum("ij,ji->", H, second) + population.noise_var
    gaussian = (k + 1) * HMH + tau * H
    if fourth is None:
        return gaussian
    excess = (fourth - 3) * jnp.diagonal(H) ** 2 * jnp.diagonal(second)
    return gaussian + jnp.diag(excess)


def step_risk(population: Any, Gamma: Array, k: Array, second: Any = None) -> Array:
    r"""Risk of <Gamma X'y / k, x> without the query's noise.

    .. math:: \mathrm{tr}(H M) - 2\,\mathrm{tr}(H \Gamma H M)
        + \mathrm{tr}(\Gamma^\top H \Gamma S), \qquad
        k S = E [x x^\top M x x^\top] + (k - 1) H M H + \sigma^2 H

    with M = E w w', or another ``second`` moment of the weights.
    """
    check_shape("Gamma", Gamma, (population.dim, population.dim))
    H = population.input_cov
    M = population.second_moment if second is None else second
    G, HM = jnp.asarray(Gamma, H.dtype), einsum("ij,jk->ik", H, M)
    cross = einsum("ij,jk,ki->", H, G, HM)
    square = einsum("ji,jk,kl,li->", G, H, G, label_moment(population, M, k))
    moved = square / jnp.maximum(k, 1) - 2 * cross
    return jnp.trace(HM) + jnp.where(k > 0, moved, 0)


def checked_fourth_moment(value: Any, H: Array) -> tuple[Array, Array]:
    """The fourth and second moments as arrays; raises for those of no distribution."""
    name, dim = "fourth_moment", len(H)
    value = jnp.asarray(real(name, value), H.dtype)
    module = jnp if is_tracer(value) or is_tracer(H) else np
    if value.ndim < 2:
        check_shape(name, value, (dim,) * value.ndim)
        variances = module.diagonal(H)
        off = module.max(abs(H - module.diag(variances)))
        off = off / module.maximum(module.max(variances), 1e-30)
        return where_valid((value, H), _KURTOSIS(name, value), _DIAGONAL(name, off))
    check_shape(name, value, (dim,) * 4)
    flags = [finite(name, value)]
    size = module.maximum(module.max(abs(value)), 1e-30)
    for order in ((1, 0, 2, 3), (1, 2, 3, 0)):  # they generate all orders
        gap = module.max(abs(value - module.transpose(value, order))) / size
        flags.append(_SYMMETRIC(name, gap))
    least = module.min(module.einsum("iijj->ij", value)) / size
    return where_valid((value, H), *flags, _SQUARES(name, least))
