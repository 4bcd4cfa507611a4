"""Linear attention trained from a balanced start (Zhang, Frei and Bartlett, 2024).

Its prompts have x ~ N(0, Lambda), w ~ N(0, I) and no mask; the paper has no noise.
Training is gradient flow on the risk; the paper takes half of it, so that its times are
twice those here. With N examples

    G = (1 + 1/N) Lambda + (tr(Lambda) + sigma^2) / N I,

and G^{-1} is the best gradient step.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from icltheory._checks import (
    Check,
    check_shape,
    checked,
    count,
    finite,
    positive,
    real,
    scalar,
)
from icltheory._core import calculator, where_valid
from icltheory._typing import Array, Float
from icltheory.regression._linalg import as_floats, einsum, seen_eigenvalues
from icltheory.regression.blocks import EffectiveParameters
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors.base import Predictor

__all__ = ["AttentionWeights"]


class AttentionWeights(Predictor):
    r"""The two trained blocks of linear attention.

    .. math:: W^{PV} = \begin{pmatrix} 0 & 0 \\ 0 & u \end{pmatrix}, \qquad
        W^{KQ} = \begin{pmatrix} U & 0 \\ 0 & 0 \end{pmatrix}.

    All other entries stay 0 in training. The flow conserves :math:`u^2 - \|U\|_F^2`.

    Args:
        u: Label entry of the values.
        U: Input block of the scores, ``(d, d)``.

    Example:
        >>> weights = AttentionWeights(jnp.array(2.0), 0.5 * jnp.eye(2))
        >>> # one gradient step of size 1
        >>> float(weights.predict(jnp.eye(2), jnp.array([2.0, 4.0]), jnp.ones(2)))
        3.0

    Source: Zhang, Frei and Bartlett (2024), Section 4.
    """

    u: Any
    U: Any

    def __post_init__(self):
        u, U = as_floats(real("u", self.u), real("U", self.U))
        check_shape("u", u, ())
        check_shape("U", U, ("d", "d"))
        self.u, self.U = checked("u", u, finite), checked("U", U, finite)

    @classmethod
    def balanced(
        cls, population: LinearPopulation, num_examples: Any, Theta: Any, scale: Any
    ) -> "AttentionWeights":
        r"""The start for which the paper proves convergence, with u^2 = ||U||_F^2.

        .. math:: u_0 = s, \qquad U_0 = s\, \Theta \Theta^\top, \qquad
            \|\Theta \Theta^\top\|_F = 1, \qquad s^2 \|G\| \sqrt d < 2.

        Example:
            >>> population = LinearPopulation.isotropic(4)
            >>> Theta = jnp.eye(4) / 2**0.5
            >>> start = AttentionWeights.balanced(population, 3, Theta, 0.5)
            >>> float(start.u), round(float(start.U[0, 0]), 6)
            (0.5, 0.25)

        Source: Zhang, Frei and Bartlett (2024), Assumption 3.3.
        """
        return _start(population, num_examples, Theta, scale)

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return jnp.shape(self.U)[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of the weights."""
        return jnp.result_type(self.U)

    def effective(self) -> EffectiveParameters:
        """The same function as effective parameters, with v = u and the rest 0."""
        zero = jnp.zeros_like(self.U[0])
        return EffectiveParameters(zero, zero, self.u, self.U, zero)

    def matrices(self) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
        """W^PV and W^KQ."""
        W_KQ = jnp.pad(self.U, ((0, 1), (0, 1)))
        return jnp.zeros_like(W_KQ).at[-1, -1].set(self.u), W_KQ

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The gradient step with Gamma = u U'."""
        return self.effective().answer(X, y, x_query)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """That of its effective parameters."""
        return self.effective().exact_risk(population, k)


def is_standard(name: str, population: LinearPopulation, given: Any = None) -> Any:
    """The check of tasks w ~ N(0, I) and inputs in all directions."""
    H, Psi = population.input_cov, population.task_cov
    zero = Check(lambda mean: mean == 0, "task_mean = 0")
    one = Check(lambda gap: abs(gap) <= 1e-6, "task_cov = I")
    definite = Check(lambda values: values > 0, "a positive definite input_cov")
    return (
        zero(name, population.task_mean)
        & one(name, Psi - jnp.eye(population.dim, dtype=Psi.dtype))
        & definite(name, seen_eigenvalues(H)[0])
    )


def is_balanced(name: str, weights: AttentionWeights, given: Any = None) -> Any:
    """The check of weights whose invariant is not negative."""
    excess = jnp.square(weights.u) - jnp.sum(jnp.square(weights.U)) * (1 - 1e-5)
    return Check(lambda excess: excess >= 0, "u^2 - ||U||_F^2 >= 0")(name, excess)


@calculator(
    compiled=False,
    integers=("num_examples",),
    population=is_standard,
    num_examples=count(1),
    Theta=finite,
    scale=scalar & positive,
)
def _start(population, num_examples, Theta, scale):
    dim = population.dim
    check_shape("Theta", Theta, (dim, dim))
    Theta, s = as_floats(Theta, scale)
    square = einsum("ij,kj->ik", Theta, Theta)
    size = jnp.sqrt(jnp.sum(square**2))
    one = Check(lambda size: abs(size - 1) <= 1e-5, "|Theta Theta'|_F = 1")
    largest = Scales.of(population, num_examples)[0].g[-1] * dim**0.5
    fits = Check(lambda s: s**2 * largest < 2, "scale^2 |G| sqrt(d) < 2")
    flags = one("Theta", size), fits("scale", s)
    return where_valid(AttentionWeights(s, s * square), *flags)


class Scales(NamedTuple):
    """The flow's quantities in the eigenbasis of Lambda.

    ``values`` those of Lambda, ascending, ``g`` of G, ``pairs`` g_i lambda_i lambda_j.
    """

    values: Array
    g: Array
    pairs: Array

    @classmethod
    def of(cls, population: LinearPopulation, N: Any) -> tuple["Scales", Array]:
        """Returns the quantities and the eigenbasis."""
        values, V = jnp.linalg.eigh(population.input_cov)
        tau = jnp.sum(values) + population.noise_var
        g = (1 + 1 / N) * values + tau / N
        return cls(values, g, (g * values)[:, None] * values[None, :]), V


class Reduced(NamedTuple):
    """Coordinates of the flow: U in the eigenbasis, and u from the invariant.

    ``balance`` is u^2 - |U|_F^2 and ``sign`` that of u, both at the start.
    """

    scales: Scales
    basis: Array
    balance: Array
    sign: Array

    @classmethod
    def of(cls, population: LinearPopulation, N: Any, start: AttentionWeights):
        """Computes the coordinates of a population and a start."""
        scales, V = Scales.of(population, N)
        balance = start.u**2 - jnp.sum(start.U**2)
        return cls(scales, V, balance, jnp.sign(start.u))

    def state(self, weights: AttentionWeights) -> Array:
        """Converts weights to a state."""
        return einsum("ji,jk,kl->il", self.basis, weights.U, self.basis).ravel()

    def model(self, state: Array) -> AttentionWeights:
        """Converts a state to weights."""
        U, u = self.split(state)
        return AttentionWeights(u, einsum("ij,jk,lk->il", self.basis, U, self.basis))

    def split(self, state: Array) -> tuple[Array, Array]:
        """U in the eigenbasis, and u."""
        d = self.scales.values.shape[0]
        square = jnp.sum(state**2) + self.balance
        return state.reshape(d, d), self.sign * jnp.sqrt(jnp.maximum(square, 0))


def field(state: Array, at: Reduced) -> Array:
    """Time derivative of U."""
    U, u = at.split(state)
    drive = u * jnp.diag(at.scales.values**2)
    return 2 * (drive - u**2 * at.scales.pairs * U).ravel()


def decay_rates(state: Array, at: Reduced) -> Array:
    """Decay rates of U, including the change of u near the limit."""
    U, u = at.split(state)
    return 2 * (at.scales.pairs * (u**2 + U**2)).ravel()
