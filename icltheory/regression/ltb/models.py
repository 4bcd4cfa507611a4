"""Linear self-attention and the linear transformer block, with all their matrices."""

import dataclasses
from typing import TYPE_CHECKING

import jax.numpy as jnp

from icltheory._checks import checked, finite, real
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import as_floats, einsum
from icltheory.regression.ltb._fields import WeightField
from icltheory.regression.ltb._prompts import (
    Examples,
    Labels,
    Queries,
    Tokens,
    read_prompt,
    read_tokens,
    token_matrix,
)
from icltheory.regression.ltb.effective import EffectiveParameters
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors.base import Predictor
from icltheory.regression.risks._population import Count

__all__ = ["LSA", "LTB"]


class _Block(Predictor):
    """Base class of both models."""

    if TYPE_CHECKING:  # attributes of the subclasses

        def read_out(self) -> Array: ...
        @property
        def W_K(self) -> Array: ...
        @property
        def W_Q(self) -> Array: ...
        @property
        def W_P(self) -> Array: ...
        @property
        def W_V(self) -> Array: ...

    def __post_init__(self):
        names = [field.name for field in dataclasses.fields(self)]  # pyrefly: ignore
        values = as_floats(*(real(name, getattr(self, name)) for name in names))
        for name, value in zip(names, values, strict=True):
            setattr(self, name, checked(name, value, finite))
        _check_pairs(list(zip(names, values, strict=True)))

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return jnp.shape(self.W_K)[-1] - 1

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of the weights."""
        return jnp.result_type(self.W_K)

    def effective(self) -> EffectiveParameters:
        """The parameters through which the weights enter the output."""
        d, last = self.dim, self.read_out()
        values = einsum("j,ij,ik->k", last, self.W_P, self.W_V)
        scores = einsum("ij,ik->jk", self.W_K, self.W_Q)[:, :d]
        return EffectiveParameters(
            last[:d], values[:d], values[d], scores[:d], scores[d]
        )

    def predict(
        self, X: Examples, y: Labels, x_query: Queries, mask: str = "demos"
    ) -> Float[Array, "*B"]:
        """Predicts for one prompt or a batch of prompts."""
        X, y, x = read_prompt(X, y, x_query, mask, self)
        return self.predict_tokens(token_matrix(X, y, x), mask)

    def predict_tokens(self, E: Tokens, mask: str = "demos") -> Float[Array, "*B"]:
        """Predicts from tokens as rows, [x_i, y_i] and last [x_query, 0].

        Runs the weights on the tokens, O(M (d + d_k + d_v)) a prompt after the products
        of weights. The mask ``"demos"`` keeps the query from attending to itself.
        """
        E = read_tokens(E, self.dim, mask)
        M = E.shape[-2] - 1
        seen = E[..., :M, :] if mask == "demos" else E
        query = einsum("ij,...j->...i", self.W_Q, E[..., -1, :])
        scores = einsum(
            "...ti,...i->...t", einsum("...tj,ij->...ti", seen, self.W_K), query
        )
        mixed = einsum("...t,...tj->...j", scores, seen) / M
        moved = einsum("ki,kj,...j->...i", self.W_P, self.W_V, mixed)
        return einsum("...i,i->...", E[..., -1, :] + moved, self.read_out())

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The last entry of the query's token."""
        if not len(X):
            return einsum("i,i->", self.read_out()[: self.dim].astype(X.dtype), x_query)
        return self.predict_tokens(token_matrix(X, y, x_query))

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """That of its effective parameters."""
        return self.effective().exact_risk(population, k)

    def risk(self, problem: LinearPopulation, num_examples: Count) -> Scalar:
        """Exact risk (see ``ltb.risk``)."""
        return self.effective().risk(problem, num_examples)


class LSA(_Block):
    r"""Linear self-attention with residual and mask (Zhang-Wu-Bartlett, Section 3).

    .. math:: f(E) = \Bigl[ E + W_P^\top W_V E\,\mathrm{Mask}\,
        \frac{E^\top W_K^\top W_Q E}{M} \Bigr]_{-1,-1}, \qquad
        E = \begin{pmatrix} X^\top & x \\ y^\top & 0 \end{pmatrix}.

    Here tokens are rows; E is the paper's. ``predict`` reads (X, y, x_query),
    ``predict_tokens`` reads E', each with the mask ``"demos"`` or ``"none"``; ``risk``
    is exact; ``effective`` are the parameters that matter.

    Args:
        W_K: Keys, (d_k, d + 1).
        W_Q: Queries, (d_k, d + 1).
        W_P: Projection, (d_v, d + 1).
        W_V: Values, (d_v, d + 1).

    Returns:
        A frozen pytree.

    Example:
        >>> e, I = jnp.array([[0.0, 0.0, 1.0]]), jnp.eye(2, 3)
        >>> model = LSA(I, I, e, e)  # one gradient step of size 1 from zero
        >>> float(model.predict(jnp.eye(2), jnp.array([2.0, 4.0]), jnp.ones(2)))
        3.0

    Source: Zhang, Wu and Bartlett (2024), Section 3.
    """

    W_K: WeightField
    W_Q: WeightField
    W_P: WeightField
    W_V: WeightField

    def read_out(self) -> Array:
        """Read-out vector e_{d+1}, the label slot."""
        return jnp.eye(self.dim + 1, dtype=self.dtype)[-1]


class LTB(_Block):
    r"""The linear transformer block: linear self-attention, then a linear MLP.

    .. math:: f(E) = \Bigl[ W_2^\top W_1 \Bigl( E + W_P^\top W_V E\,\mathrm{Mask}\,
        \frac{E^\top W_K^\top W_Q E}{M} \Bigr) \Bigr]_{-1,-1}, \qquad
        E = \begin{pmatrix} X^\top & x \\ y^\top & 0 \end{pmatrix}.

    The MLP lets the query's own input reach the output, so an LTB can hold the prior
    mean of the task, which no LSA can. Methods as those of ``LSA``.

    Args:
        W_K: Keys, (d_k, d + 1).
        W_Q: Queries, (d_k, d + 1).
        W_P: Projection, (d_v, d + 1).
        W_V: Values, (d_v, d + 1).
        W_1: First matrix of the MLP, (d_f, d + 1).
        W_2: Second matrix of the MLP, (d_f, d + 1).

    Returns:
        A frozen pytree.

    Example:
        >>> e, I = jnp.array([[0.0, 0.0, 1.0]]), jnp.eye(2, 3)
        >>> start = jnp.array([[1.0, 1.0, 1.0]])  # <(1, 1), x> without examples
        >>> model = LTB(I, I, e, 0 * e, start, e)
        >>> float(model.predict(jnp.eye(2), jnp.ones(2), jnp.array([2.0, 3.0])))
        5.0

    Source: Zhang, Wu and Bartlett (2024), Section 3.
    """

    W_K: WeightField
    W_Q: WeightField
    W_P: WeightField
    W_V: WeightField
    W_1: WeightField
    W_2: WeightField

    def read_out(self) -> Array:
        """Read-out vector, the last row of W_2'W_1."""
        return einsum("i,ij->j", self.W_2[:, -1], self.W_1)


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
