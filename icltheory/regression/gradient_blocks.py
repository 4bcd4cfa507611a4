"""Blocks that make one gradient step: GD-beta, and linear attention in training.

The attention is trained from a balanced start (Zhang, Frei and Bartlett, 2024) on
prompts with x ~ N(0, Lambda) and w ~ N(0, I), for which the best gradient step is the
inverse of G = (1 + 1/N) Lambda + (tr(Lambda) + sigma^2) / N I. The paper takes half of
the risk, so that its times are twice those here, and no noise.
"""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

from typing import Any, NamedTuple

import jax.numpy as jnp

from icltheory._checks import (
    Check,
    check_integer,
    check_positive_int,
    check_shape,
    count,
    finite,
    positive,
    scalar,
)
from icltheory._core import calculator, where_valid
from icltheory._typing import Array, Float
from icltheory.regression._block_moments import check_dim
from icltheory.regression._linalg import as_floats, einsum, seen_eigenvalues
from icltheory.regression.blocks import LTB, Block, EffectiveParameters
from icltheory.regression.population import LinearPopulation, step_risk
from icltheory.regression.predictors import LinearInLabels, LinearStep


class GDBeta(LinearInLabels, Block):
    r"""One step of preconditioned gradient descent from a learned start beta.

    .. math:: \hat w = \beta - \frac{\Gamma}{N} X^\top (X \beta - y) .

    Every GD-beta is an LTB (Lemma 5.1), and the best one is a best LTB (Theorem 5.3).

    Example:
        >>> model = GDBeta(jnp.ones(2), 2 * jnp.eye(2))
        >>> X, y = jnp.eye(2), jnp.array([1.0, 4.0])
        >>> float(model.predict(X, y, jnp.ones(2)))
        5.0

    Source: Zhang, Wu and Bartlett (2024), Section 5.
    """

    beta: Any
    Gamma: Any

    def __post_init__(self):
        self._read()
        check_shape("beta", self.beta, ("d",))
        check_positive_int("dim", len(self.beta))
        check_shape("Gamma", self.Gamma, (len(self.beta),) * 2)

    def weights(self, X: Array, y: Array) -> Array:
        residual = einsum("nd,d->n", X, self.beta) - y
        gradient = einsum("nd,n->d", X, residual) / max(X.shape[0], 1)
        return self.beta - einsum("ij,j->i", self.Gamma, gradient)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        r"""That of a linear step on the weights w - beta (proof of Theorem 5.2).

        Their second moment is :math:`\Psi + (\beta - \beta^*)(\beta - \beta^*)^\top`.
        """
        check_dim(population, self.dim)
        b = self.beta - population.task_mean
        second = population.task_cov + b[:, None] * b[None]
        return step_risk(population, self.Gamma, k, second)

    def effective(self) -> EffectiveParameters:
        """The parameters of its LTB: c = beta, p = -beta, v = 1, U = Gamma', u = 0."""
        one, zero = jnp.ones((), self.dtype), jnp.zeros_like(self.beta)
        return EffectiveParameters(self.beta, -self.beta, one, self.Gamma.T, zero)

    @classmethod
    def of(cls, block: Any) -> "GDBeta":
        r"""The GD-beta of :math:`\beta = c`, :math:`\Gamma = v U^\top` for a block.

        It is the same function where u = 0 and p = -v c, as for every best LTB on the
        inputs that come.

        Example:
            >>> model = GDBeta(jnp.ones(2), jnp.array([[1.0, 2.0], [3.0, 4.0]]))
            >>> GDBeta.of(model.to_ltb()).Gamma.tolist()
            [[1.0, 2.0], [3.0, 4.0]]

        Source: Zhang, Wu and Bartlett (2024), Theorem 5.3.
        """
        parts = block.effective()
        return cls(parts.c, parts.v * parts.U.T)

    def to_ltb(
        self, *, key_dim: int | None = None, value_dim: int = 1, hidden_dim: int = 1
    ) -> LTB:
        r"""The LTB that is the same function of every prompt (Lemma 5.1).

        .. math:: W_K = [I \; 0], \quad W_Q = [\Gamma^\top \; 0], \quad
            W_P = e^\top, \quad W_V = [-\beta^\top \; 1], \quad
            W_1 = [\beta^\top \; 1], \quad W_2 = e^\top,

        with e = e_{d+1}. Larger widths (rows of W_K, W_Q; of W_P, W_V; of W_1, W_2) get
        rows of zeros; ``key_dim`` is d when left out.

        Example:
            >>> block = GDBeta(jnp.ones(2), 2 * jnp.eye(2)).to_ltb()
            >>> float(block.predict(jnp.eye(2), jnp.array([1.0, 4.0]), jnp.ones(2)))
            5.0

        Source: Zhang, Wu and Bartlett (2024), Lemma 5.1.
        """
        d = self.dim
        key_dim = d if key_dim is None else key_dim
        check_integer("key_dim", key_dim, d)
        check_positive_int("value_dim", value_dim)
        check_positive_int("hidden_dim", hidden_dim)
        block = self.effective().to_ltb()
        # The rows of the scores that read u = 0 are not needed.
        keys = block.W_K[:d], block.W_Q[:d]
        others = block.W_P, block.W_V, block.W_1, block.W_2
        rows = 2 * (key_dim,) + 2 * (value_dim,) + 2 * (hidden_dim,)
        padded = zip(keys + others, rows, strict=True)
        return LTB(*(jnp.pad(W, ((0, n - len(W)), (0, 0))) for W, n in padded))


def parts_of(model: Any) -> EffectiveParameters:
    """The effective parameters of a model; raises for what has none."""
    if isinstance(model, LinearStep):
        model = GDBeta(0 * model.Gamma[0], model.Gamma)
    if not hasattr(model, "effective"):
        raise ValueError(
            "model: expected LinearStep, GDBeta, LSA, LTB or EffectiveParameters, "
            f"got {type(model).__name__}"
        )
    return model.effective()


class AttentionWeights(Block):
    r"""The two trained blocks of linear attention.

    .. math:: W^{PV} = \begin{pmatrix} 0 & 0 \\ 0 & u \end{pmatrix}, \qquad
        W^{KQ} = \begin{pmatrix} U & 0 \\ 0 & 0 \end{pmatrix}.

    All other entries stay 0 in training. The flow conserves :math:`u^2 - \|U\|_F^2`.

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
        self._read()
        check_shape("u", self.u, ())
        check_shape("U", self.U, ("d", "d"))

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

    def effective(self) -> EffectiveParameters:
        """The same function as effective parameters, with v = u and the rest 0."""
        zero = jnp.zeros_like(self.U[0])
        return EffectiveParameters(zero, zero, self.u, self.U, zero)

    def matrices(self) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
        """W^PV and W^KQ."""
        W_KQ = jnp.pad(self.U, ((0, 1), (0, 1)))
        return jnp.zeros_like(W_KQ).at[-1, -1].set(self.u), W_KQ


CENTRED = Check(lambda mean: mean == 0, "task_mean = 0")


def is_standard(name: str, population: LinearPopulation, given: Any = None) -> Any:
    """The check of tasks w ~ N(0, I) and inputs in all directions."""
    H, Psi = population.input_cov, population.task_cov
    one = Check(lambda gap: abs(gap) <= 1e-6, "task_cov = I")
    definite = Check(lambda values: values > 0, "a positive definite input_cov")
    flag = CENTRED(name, population.task_mean) & definite(name, seen_eigenvalues(H)[0])
    return flag & one(name, Psi - jnp.eye(population.dim, dtype=Psi.dtype))


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
    square = Theta @ Theta.T
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
