"""Blocks that make one gradient step: GD-beta, and the heads of linear attention."""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    Check,
    check_integer,
    check_key,
    check_positive_int,
    check_shape,
    checked,
    count,
    finite,
    positive,
    scalar,
)
from icltheory._core import calculator, where_valid
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression._block_moments import (
    Moments,
    check_dim,
    gd_beta_gradient,
)
from icltheory.regression._linalg import (
    Number,
    as_floats,
    default_dtype,
    einsum,
    seen_eigenvalues,
)
from icltheory.regression.blocks import LTB, Block, EffectiveParameters
from icltheory.regression.population import LinearPopulation, step_risk
from icltheory.regression.predictors import LinearInLabels
from icltheory.regression.predictors.steps import OneStep


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
        # The row of u = 0 in the scores is not needed.
        W_K, W_Q, *others = jax.tree.leaves(self.effective().to_ltb())
        matrices = W_K[:d], W_Q[:d], *others
        rows = np.repeat([key_dim, value_dim, hidden_dim], 2)
        padded = zip(matrices, rows, strict=True)
        return LTB(*(jnp.pad(W, ((0, n - len(W)), (0, 0))) for W, n in padded))


class Heads(OneStep, Block):
    r"""One layer of linear attention with H heads.

    .. math:: \hat w = \frac{\Gamma}{N} X^\top y, \qquad
        \Gamma = \sum_h v_h U_h^\top, \qquad U_h = K_h^\top Q_h ,

    for values v ``(H,)``, keys K and queries Q ``(H, R, d)``; or U_h = K_h ``(d, d)``
    where Q is ``None``, the key-query matrix as one parameter. One merged head of value
    u is the layer with the blocks U and u alone, all else 0, which the flow conserves,
    as it does :math:`u^2 - \|U\|_F^2`.

    Example:
        >>> K = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]]])  # two heads of rank 1
        >>> model = Heads(jnp.array([1.0, 2.0]), K, K)
        >>> model.Gamma.tolist()
        [[1.0, 0.0], [0.0, 2.0]]

    Source: Zhang, Singh, Latham and Saxe (2025); Zhang, Frei and Bartlett (2024).
    """

    v: Any
    K: Any
    Q: Any = None

    def __post_init__(self):
        self._read()
        check_shape("v", self.v, ("H",))
        check_positive_int("heads", len(self.v))
        rank = "d" if self.Q is None else "R"
        check_shape("K", self.K, (len(self.v), rank, "d"))
        check_positive_int("dim", self.K.shape[-1])
        if self.Q is not None:
            check_shape("Q", self.Q, self.K.shape)

    @classmethod
    def random(
        cls,
        dim: int,
        heads: int,
        scale: Number,
        *,
        key: PRNGKey,
        rank: int | None = None,
        dtype: Any = None,
    ) -> "Heads":
        """Draws all weights from N(0, scale^2); merged heads without a rank."""
        rows = dim if rank is None else rank
        for name, value in (("dim", dim), ("heads", heads), ("rank", rows)):
            check_positive_int(name, value)
        check_key("key", key)
        dtype = default_dtype(dtype)
        scale = jnp.asarray(checked("scale", scale, scalar & positive), dtype)
        keys, shape = jax.random.split(key, 3), (heads, rows, dim)
        v = scale * jax.random.normal(keys[0], (heads,), dtype)
        K, Q = (scale * jax.random.normal(key, shape, dtype) for key in keys[1:])
        return cls(v, K, None if rank is None else Q)

    @classmethod
    def balanced(
        cls, population: LinearPopulation, num_examples: Any, Theta: Any, scale: Any
    ) -> "Heads":
        r"""The merged head from which convergence is proved, with u^2 = ||U||_F^2.

        .. math:: u_0 = s, \qquad U_0 = s\, \Theta \Theta^\top, \qquad
            \|\Theta \Theta^\top\|_F = 1, \qquad s^2 \|G\| \sqrt d < 2,

        with :math:`G = (1 + 1/N) H + (\mathrm{tr}(H) + \sigma^2) / N\, I` the inverse
        of the best step for tasks w ~ N(0, I).

        Example:
            >>> population = LinearPopulation.isotropic(4)
            >>> start = Heads.balanced(population, 3, jnp.eye(4) / 2**0.5, 0.5)
            >>> float(start.v[0]), round(float(start.K[0, 0, 0]), 6)
            (0.5, 0.25)

        Source: Zhang, Frei and Bartlett (2024), Assumption 3.3.
        """
        return _balanced(population, num_examples, Theta, scale)

    @property
    def is_merged(self) -> bool:
        """Whether it is one head whose key-query matrix is one parameter."""
        return self.Q is None and len(self.v) == 1

    def key_query(self) -> Float[Array, "H d d"]:
        """The key-query matrices U_h."""
        return self.K if self.Q is None else einsum("hri,hrj->hij", self.K, self.Q)

    @property
    def Gamma(self) -> Float[Array, "d d"]:
        """The linear step that the heads make together."""
        return einsum("h,hji->ij", self.v, self.key_query())

    def effective(self) -> EffectiveParameters:
        """The same function as effective parameters: v = 1, U = Gamma', the rest 0."""
        one, zero = jnp.ones((), self.dtype), jnp.zeros_like(self.K[0, 0])
        return EffectiveParameters(zero, zero, one, self.Gamma.T, zero)

    def minus_gradient(self, at: Moments) -> "Heads":
        r"""Minus the gradient of the risk, for D = 2 (B - H Gamma S).

        .. math:: \dot v_h = \langle D, U_h^\top\rangle, \quad \dot K_h = v_h Q_h D,
            \quad \dot Q_h = v_h K_h D^\top, \qquad \text{merged} \quad
            \dot U_h = v_h D^\top .
        """
        D = -gd_beta_gradient(at, jnp.zeros_like(at.mean), self.Gamma)[1]
        v = self.v[:, None, None]
        if self.Q is None:
            return Heads(einsum("ij,hji->h", D, self.K), v * D.T[None])
        KD = einsum("hrj,ij->hri", self.K, D)
        QD = einsum("hri,ij->hrj", self.Q, D)
        return Heads(jnp.sum(self.Q * KD, axis=(1, 2)), v * QD, v * KD)


CENTRED = Check(lambda mean: mean == 0, "task_mean = 0")


def is_standard(name: str, population: LinearPopulation, given: Any = None) -> Any:
    """The check of tasks w ~ N(0, I) and inputs in all directions."""
    H, Psi = population.input_cov, population.task_cov
    one = Check(lambda gap: abs(gap) <= 1e-6, "task_cov = I")
    definite = Check(lambda values: values > 0, "a positive definite input_cov")
    flag = CENTRED(name, population.task_mean) & definite(name, seen_eigenvalues(H)[0])
    return flag & one(name, Psi - jnp.eye(population.dim, dtype=Psi.dtype))


@calculator(
    compiled=False,
    integers=("num_examples",),
    population=is_standard,
    num_examples=count(1),
    Theta=finite,
    scale=scalar & positive,
)
def _balanced(population, num_examples, Theta, scale):
    check_shape("Theta", Theta, (population.dim, population.dim))
    Theta, s = as_floats(Theta, scale)
    square = Theta @ Theta.T
    size = jnp.sqrt(jnp.sum(square**2))
    one = Check(lambda size: abs(size - 1) <= 1e-5, "|Theta Theta'|_F = 1")
    largest = inverse_step(population, num_examples)[1][-1] * population.dim**0.5
    fits = Check(lambda s: s**2 * largest < 2, "scale^2 |G| sqrt(d) < 2")
    flags = one("Theta", size), fits("scale", s)
    return where_valid(Heads(s[None], s * square[None]), *flags)


def inverse_step(population: LinearPopulation, N: Any) -> tuple[Array, Array, Array]:
    """Eigenvalues of H and of the inverse G of the best step, ascending, and vectors.

    For tasks w ~ N(0, I).
    """
    values, V = jnp.linalg.eigh(population.input_cov)
    tau = jnp.sum(values) + population.noise_var
    return values, (1 + 1 / N) * values + tau / N, V
