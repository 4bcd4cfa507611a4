"""Linear attention, the same with a linear MLP, and their effective parameters."""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import (
    Check,
    check_choice,
    check_positive_int,
    check_shape,
    checked,
    finite,
)
from icltheory._core import calculator
from icltheory._typing import Array, Float
from icltheory.regression._block_moments import (
    Moments,
    check_dim,
    effective_risk,
    weighted,
)
from icltheory.regression._linalg import Number, dot, einsum, finite_floats
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors.base import LinearPredictor, Predictor


class Block(Predictor):
    """A predictor whose fields are finite arrays of one dtype, with effective ones."""

    def _read(self) -> dict[str, Array]:
        """Reads and checks the fields; a subclass checks their shapes."""
        names = [field.name for field in dataclasses.fields(self)]
        given = {name: getattr(self, name) for name in names}
        given = {name: value for name, value in given.items() if value is not None}
        read = dict(zip(given, finite_floats(**given), strict=True))
        for name, array in read.items():
            setattr(self, name, array)
        return read

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return jnp.shape(jax.tree.leaves(self)[-1])[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of the parameters."""
        return jnp.result_type(jax.tree.leaves(self)[-1])

    @abc.abstractmethod
    def effective(self) -> "EffectiveParameters":
        """The same function as effective parameters."""

    @calculator(static=("mask",))
    def predict_tokens(self, E: Any, mask: str = "demos") -> Float[Array, ""]:
        """Answers from tokens as rows, [x_i, y_i] and last [x_query, 0].

        The mask ``"demos"`` keeps the query from attending to itself.
        """
        check_choice("mask", mask, ("demos", "none"))
        check_shape("E", E, ("N + 1", self.dim + 1))
        if not len(E):
            raise ValueError("E: expected the query's token at least, got none")
        X, y, x = E[:-1, :-1], E[:-1, -1], E[-1, :-1]
        parts = self.effective()
        answer = parts.answer(X, y, x)
        if mask == "demos":
            return answer
        return answer + dot(x, parts.p) * weighted(parts.U, x) / max(len(y), 1)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """That of its effective parameters."""
        return self.effective().answer(X, y, x_query)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """That of its effective parameters."""
        return self.effective().exact_risk(population, k)


class EffectiveParameters(LinearPredictor, Block):
    r"""Parameters that determine the output of a linear transformer block.

    .. math:: (c^\top, c_0) = \text{last row of } W_2^\top W_1, \quad
        (p^\top, v) = (c^\top, c_0) W_P^\top W_V, \quad
        \begin{pmatrix} U \\ u^\top \end{pmatrix} = \text{first } d \text{ columns of }
        W_K^\top W_Q,

    and the weight is

    .. math:: \hat w = c + U^\top S p + \frac{p^\top X^\top y}{N} u
        + \frac vN U^\top X^\top y + \frac{v\, y^\top y}{N} u, \qquad S = X^\top X / N.

    An LSA has c = 0. The scale is free: (sp, sv, U/s, u/s) is the same function.
    Without the mask the query attends to itself too, which adds
    :math:`(p^\top x)(x^\top U x) / N`.

    Example:
        >>> zero, eye = jnp.zeros(2), jnp.eye(2)
        >>> step = EffectiveParameters(zero, zero, 1.0, eye, zero)  # one step of size 1
        >>> float(step.predict(eye, jnp.array([2.0, 4.0]), jnp.ones(2)))
        3.0

    Source: Zhang, Wu and Bartlett (2024), Section 3 and Appendices B and D.
    """

    c: Any
    p: Any
    v: Any
    U: Any
    u: Any

    def __post_init__(self):
        self._read()
        check_shape("c", self.c, ("d",))
        d = len(self.c)
        check_positive_int("dim", d)
        for name, shape in (("p", (d,)), ("v", ()), ("U", (d, d)), ("u", (d,))):
            check_shape(name, getattr(self, name), shape)

    def effective(self) -> "EffectiveParameters":
        return self

    def rescaled(self, factor: Number) -> "EffectiveParameters":
        """The same function with rescaled parameters: (s p, s v, U / s, u / s)."""
        other = finite & Check(lambda s: s != 0, "a number other than 0")
        s = jnp.asarray(checked("factor", factor, other), self.dtype)
        values, scores = (s * self.p, s * self.v), (self.U / s, self.u / s)
        return EffectiveParameters(self.c, *values, *scores)

    def weights(self, X: Array, y: Array) -> Array:
        values = (einsum("nd,d->n", X, self.p) + self.v * y) / max(len(X), 1)
        moment = einsum("nd,n->d", X, values)
        return self.c + einsum("ji,j->i", self.U, moment) + dot(y, values) * self.u

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        r"""The risk of any LTB, evaluated without roots or inverses of H.

        In whitened coordinates q = H^{1/2}(p + v beta*), A = H^{1/2}(U + beta* u')
        H^{1/2}, g = H^{1/2} u, m = H^{1/2}(beta* - c), B = vA + qg', Phi = H^{1/2} Psi
        H^{1/2}, tau = tr(Phi) + sigma^2, Omega = ((N + 1) Phi + tau I) / N,

        .. math:: R - \sigma^2 = \mathrm{tr}(\Phi) - 2\,\mathrm{tr}(B^\top \Phi)
            + \mathrm{tr}(B^\top \Omega B) + \text{start} + \text{fluctuation}
            + \text{drift} ,

        the last three as in ``gaps.Excess``.
        """
        check_dim(population, self.dim)
        moments = Moments.of(population, jnp.maximum(k, 1))
        found = effective_risk(moments, self)
        at_zero = moments.signal + weighted(moments.H, self.c - moments.mean)
        return jnp.where(k > 0, found, at_zero)

    def to_lsa(self) -> "LSA":
        r"""An LSA with these values and scores; c is ignored.

        .. math:: W_K = I_{d+1}, \quad W_Q = \begin{pmatrix} U & 0 \\ u^\top & 0
            \end{pmatrix}, \quad W_P = e^\top, \quad W_V = [p^\top \; v].
        """
        scores = jnp.concatenate([self.U, self.u[None]])
        return LSA(
            W_K=jnp.eye(self.dim + 1, dtype=self.dtype),
            W_Q=jnp.pad(scores, ((0, 0), (0, 1))),
            W_P=label_row(self.dim, self.dtype),
            W_V=jnp.append(self.p, self.v)[None],
        )

    def to_ltb(self) -> "LTB":
        r"""An LTB with these parameters: the LSA and :math:`W_1 = [c^\top \; 1]`."""
        layer, label = self.to_lsa(), label_row(self.dim, self.dtype)
        read_out = jnp.append(self.c, 1)[None]
        return LTB(layer.W_K, layer.W_Q, layer.W_P, layer.W_V, read_out, label)


class _Weights(Block):
    """Base class of LSA and LTB."""

    W_K: Any
    W_Q: Any
    W_P: Any
    W_V: Any

    def __post_init__(self):
        _check_pairs(list(self._read().items()))

    @property
    def dim(self) -> int:
        return jnp.shape(self.W_K)[-1] - 1

    def read_out(self) -> Array:
        """Read-out vector e_{d+1}, the label slot."""
        return jnp.eye(self.dim + 1, dtype=self.dtype)[-1]

    def effective(self) -> EffectiveParameters:
        d, last = self.dim, self.read_out()
        values = einsum("j,ij,ik->k", last, self.W_P, self.W_V)
        scores = einsum("ij,ik->jk", self.W_K, self.W_Q)[:, :d]
        parts = last[:d], values[:d], values[d], scores[:d], scores[d]
        return EffectiveParameters(*parts)


class LSA(_Weights):
    r"""Linear self-attention with residual and mask (Zhang-Wu-Bartlett, Section 3).

    .. math:: f(E) = \Bigl[ E + W_P^\top W_V E\,\mathrm{Mask}\,
        \frac{E^\top W_K^\top W_Q E}{N} \Bigr]_{-1,-1}, \qquad
        E = \begin{pmatrix} X^\top & x \\ y^\top & 0 \end{pmatrix}.

    E is the paper's; ``predict_tokens`` reads its transpose. W_K and W_Q are
    (d_k, d + 1), W_P and W_V (d_v, d + 1).

    Example:
        >>> e, I = jnp.array([[0.0, 0.0, 1.0]]), jnp.eye(2, 3)
        >>> model = LSA(I, I, e, e)  # one gradient step of size 1 from zero
        >>> float(model.predict(jnp.eye(2), jnp.array([2.0, 4.0]), jnp.ones(2)))
        3.0

    Source: Zhang, Wu and Bartlett (2024), Section 3.
    """

    @classmethod
    def gradient_step(cls, start: Any, step_size: Number) -> "LSA":
        r"""The layer of one gradient step on prompts whose query carries the start.

        .. math:: W_K = W_Q = \begin{pmatrix} I & 0 \\ 0 & 0 \end{pmatrix}, \quad
            W_P = e^\top, \quad W_V = \eta\, [w_0^\top \; -1].

        On tokens whose query is :math:`[x, -\langle w_0, x\rangle]` the last entry
        becomes minus the prediction of one step of size eta from w_0; on the prompts of
        ``predict``, whose query carries 0, minus the change that the step makes.

        Example:
            >>> layer = LSA.gradient_step(jnp.zeros(2), 1.0)
            >>> float(-layer.predict(jnp.eye(2), jnp.array([2.0, 4.0]), jnp.ones(2)))
            3.0

        Source: von Oswald et al. (2023), Proposition 1.
        """
        start, step_size = finite_floats(start=start, step_size=step_size)
        check_shape("start", start, ("d",))
        check_shape("step_size", step_size, ())
        d = start.shape[0]
        slots = jnp.eye(d, d + 1, dtype=start.dtype)
        values = step_size * jnp.append(start, -1)
        return cls(slots, slots, label_row(d, start.dtype), values[None])


class LTB(_Weights):
    r"""The linear transformer block: linear self-attention, then a linear MLP.

    .. math:: f(E) = \Bigl[ W_2^\top W_1 \Bigl( E + W_P^\top W_V E\,\mathrm{Mask}\,
        \frac{E^\top W_K^\top W_Q E}{N} \Bigr) \Bigr]_{-1,-1}.

    The MLP lets the query's own input reach the output, so an LTB can hold the prior
    mean of the task, which no LSA can. W_1 and W_2 are (d_f, d + 1), E and the others
    those of :class:`LSA`.

    Example:
        >>> e, I = jnp.array([[0.0, 0.0, 1.0]]), jnp.eye(2, 3)
        >>> start = jnp.array([[1.0, 1.0, 1.0]])  # <(1, 1), x> without examples
        >>> model = LTB(I, I, e, 0 * e, start, e)
        >>> float(model.predict(jnp.eye(2), jnp.ones(2), jnp.array([2.0, 3.0])))
        5.0

    Source: Zhang, Wu and Bartlett (2024), Section 3.
    """

    W_1: Any
    W_2: Any

    def read_out(self) -> Array:
        """Read-out vector, the last row of W_2'W_1."""
        return einsum("i,ij->j", self.W_2[:, -1], self.W_1)


def label_row(dim: int, dtype: jnp.dtype) -> Array:
    """e_{d+1} as a row."""
    return jnp.eye(dim + 1, dtype=dtype)[-1:]


def _check_pairs(named: list[tuple[str, Array]]) -> None:
    columns = named[0][1].shape[-1] if named[0][1].ndim == 2 else None
    for (left, a), (right, b) in zip(named[::2], named[1::2], strict=True):
        for name, value in ((left, a), (right, b)):
            if value.ndim != 2 or value.shape[1] != columns or value.shape[1] < 2:
                raise ValueError(
                    f"{name}: expected shape (rows, d + 1) with the d of W_K, "
                    f"got {value.shape}"
                )
        if a.shape != b.shape:
            raise ValueError(
                f"{right}: expected the shape {a.shape} of {left}, got {b.shape}"
            )
