"""The effective parameters that determine the output of an LSA or LTB."""

import jax.numpy as jnp

from icltheory._checks import (
    Check,
    check_positive_int,
    check_shape,
    checked,
    finite,
    real,
)
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import Number, as_floats, dot, einsum
from icltheory.regression.ltb import _formulas
from icltheory.regression.ltb._fields import (
    MatrixField,
    NumberField,
    VectorField,
)
from icltheory.regression.ltb._moments import Moments, check_dim
from icltheory.regression.ltb._prompts import (
    Examples,
    Labels,
    Queries,
    Tokens,
    read_examples,
    read_prompt,
    read_tokens,
)
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors.base import Predictor
from icltheory.regression.risks._population import Count

__all__ = ["EffectiveParameters"]


class EffectiveParameters(Predictor):
    r"""Parameters that determine the output of a linear transformer block.

    .. math:: (c^\top, c_0) = \text{last row of } W_2^\top W_1, \quad
        (p^\top, v) = (c^\top, c_0) W_P^\top W_V, \quad
        \begin{pmatrix} U \\ u^\top \end{pmatrix} = \text{first } d \text{ columns of }
        W_K^\top W_Q,

    and the prediction is :math:`\langle \hat w, x\rangle` with

    .. math:: \hat w = c + U^\top S p + \frac{p^\top X^\top y}{M} u
        + \frac vM U^\top X^\top y + \frac{v\, y^\top y}{M} u, \qquad S = X^\top X / M.

    An LSA has c = 0. The scale is free: (sp, sv, U/s, u/s) is the same function. They
    are a model of their own, with the methods of ``LTB``.

    Args:
        c: Read-out of the query's input.
        p: Value row, inputs.
        v: Value row, label.
        U: Scores, inputs against inputs.
        u: Scores, labels against inputs.

    Returns:
        A frozen pytree.

    Example:
        >>> zero, eye = jnp.zeros(2), jnp.eye(2)
        >>> step = EffectiveParameters(zero, zero, 1.0, eye, zero)  # one step of size 1
        >>> float(step.predict(eye, jnp.array([2.0, 4.0]), jnp.ones(2)))
        3.0

    Source: Zhang, Wu and Bartlett (2024), Section 3 and Appendices B and D.
    """

    c: VectorField
    p: VectorField
    v: NumberField
    U: MatrixField
    u: VectorField

    def __post_init__(self):
        names = ("c", "p", "v", "U", "u")
        values = [real(name, getattr(self, name)) for name in names]
        check_shape("c", values[0], ("d",))
        d = jnp.shape(values[0])[0]
        check_positive_int("dim", d)
        shapes = ((d,), (d,), (), (d, d), (d,))
        for name, value, shape in zip(names, values, shapes, strict=True):
            check_shape(name, value, shape)
        for name, value in zip(names, as_floats(*values), strict=True):
            setattr(self, name, checked(name, value, finite))

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return jnp.shape(self.c)[-1]

    def effective(self) -> "EffectiveParameters":
        """Returns the parameters themselves."""
        return self

    def rescaled(self, factor: Number) -> "EffectiveParameters":
        """The same function with rescaled parameters: (s p, s v, U / s, u / s)."""
        other = finite & Check(lambda s: s != 0, "a number other than 0")
        s = jnp.asarray(checked("factor", factor, other), self.dtype)
        return EffectiveParameters(
            self.c,
            s * self.p,
            s * self.v,
            self.U / s,
            self.u / s,
        )

    def weight(self, X: Examples, y: Labels) -> Float[Array, "*B d"]:
        """The implied weight w_hat, given the prompt's examples."""
        X, y = read_examples(X, y, self)
        M = X.shape[-2]
        values = einsum("...md,d->...m", X, self.p) + self.v * y
        moment = einsum("...md,...m->...d", X, values) / M
        labels = dot(y, values) / M
        step = einsum("ji,...j->...i", self.U, moment)
        step = step + einsum("...,i->...i", labels, self.u)
        return step + jnp.reshape(self.c, (1,) * (step.ndim - 1) + (-1,))

    def predict(
        self, X: Examples, y: Labels, x_query: Queries, mask: str = "demos"
    ) -> Float[Array, "*B"]:
        r"""Predicts for one prompt or a batch of prompts.

        Without the mask (``"none"``) the query attends to itself too, which adds
        :math:`(p^\top x)(x^\top U x) / M`.
        """
        X, y, x = read_prompt(X, y, x_query, mask, self)
        prediction = dot(self.weight(X, y), x)
        if mask == "demos":
            return prediction
        own = einsum("...i,ij,...j->...", x, self.U, x)
        return prediction + einsum("...i,i->...", x, self.p) * own / X.shape[-2]

    def predict_tokens(self, E: Tokens, mask: str = "demos") -> Float[Array, "*B"]:
        """Predicts from tokens as rows, [x_i, y_i] and last [x_query, 0]."""
        E = read_tokens(E, self.dim, mask)
        return self.predict(E[..., :-1, :-1], E[..., :-1, -1], E[..., -1, :-1], mask)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """<w, x>; without examples <c, x>."""
        w = self.weight(X, y) if len(X) else jnp.asarray(self.c, X.dtype)
        return dot(w, x_query)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """The risk, in the whitened coordinates of the population."""
        check_dim(population, self.dim)
        moments = Moments.at(population, jnp.maximum(k, 1))
        parts = self.c, self.p, self.v, self.U, self.u
        found = _formulas.effective_risk(moments, *parts) - moments.noise_var
        start = self.c - moments.mean
        at_zero = moments.signal + _formulas.weighted(moments.H, start)
        return jnp.where(k > 0, found, at_zero)

    def risk(self, problem: LinearPopulation, num_examples: Count) -> Scalar:
        """Exact risk (see ``ltb.risk``)."""
        check_dim(problem, self.dim)
        moments = Moments.of(problem, num_examples)
        return _formulas.effective_risk(
            moments,
            self.c,
            self.p,
            self.v,
            self.U,
            self.u,  # pyrefly: ignore
        )

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of the parameters."""
        return jnp.result_type(self.c)
