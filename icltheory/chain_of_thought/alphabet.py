"""Vectors that prompts consist of: patterns of states and codes of steps."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._checks import check_key, check_positive_int, check_shape, real
from icltheory._core import Record, calculator, exact_products, widened
from icltheory._typing import Array, Float, Int, PRNGKey


class Alphabet(Record):
    r"""Patterns of the states and codes of the steps.

    .. math:: \tilde p = \begin{pmatrix} x \\ y \end{pmatrix} + c_{k},

    with x and y rows of ``patterns``, ``(M, d)``, or zero, and c of ``codes``, ``(K,
    2d)``, whose lower halves are 0.

    Example:
        >>> letters = Alphabet(jnp.eye(2, 3), jnp.eye(1, 6, 2))
        >>> letters.embed(jnp.array(1), jnp.array(-1), jnp.array(0)).tolist()
        [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]

    Source: Li et al. (2025), problem formulation.
    """

    patterns: Any
    codes: Any

    def __post_init__(self):
        self.patterns = jnp.asarray(real("patterns", self.patterns))
        self.codes = jnp.asarray(real("codes", self.codes))
        check_shape("patterns", self.patterns, ("M", "d"))
        check_shape("codes", self.codes, ("K", 2 * self.dim))

    @classmethod
    def standard(cls, num_states: int, num_steps: int, dtype: Any = None) -> "Alphabet":
        """Patterns and codes that are unit vectors, in d = M + K dimensions."""
        dim = num_states + num_steps
        eye = jnp.eye(dim, dtype=jnp.result_type(float) if dtype is None else dtype)
        return cls(eye[:num_states], jnp.pad(eye[num_states:], ((0, 0), (0, dim))))

    @classmethod
    def orthonormal(
        cls, key: PRNGKey, num_states: int, num_steps: int, dim: int
    ) -> "Alphabet":
        """Draws orthonormal patterns for training, with codes orthogonal to them.

        Example:
            >>> letters = Alphabet.orthonormal(jax.random.key(0), 4, 2, 6)
            >>> products = letters.patterns @ letters.patterns.T
            >>> bool(jnp.allclose(products, jnp.eye(4), atol=1e-5))
            True

        Source: Li et al. (2025), data modelling.
        """
        check_key("key", key)
        check_positive_int("num_states", num_states)
        check_positive_int("num_steps", num_steps)
        if num_states + num_steps > dim:
            raise ValueError(
                "dim: expected M + K <= d for orthonormal patterns and codes, got "
                f"{num_states} + {num_steps} > {dim}"
            )
        basis = jnp.linalg.qr(jax.random.normal(key, (dim, dim)))[0].T
        codes = basis[num_states : num_states + num_steps]
        return cls(basis[:num_states], jnp.pad(codes, ((0, 0), (0, dim))))

    @property
    def num_states(self) -> int:
        """Number of patterns M."""
        return self.patterns.shape[-2]

    @property
    def num_steps(self) -> int:
        """Number of steps K."""
        return self.codes.shape[-2]

    @property
    def dim(self) -> int:
        """Dimension d of a pattern; a column has 2d."""
        return self.patterns.shape[-1]

    @exact_products
    def unseen(
        self, key: PRNGKey, num_states: int, residual: float | int = 0.0
    ) -> "Alphabet":
        r"""Draws M' orthonormal test patterns in the span of these ones, or near it.

        .. math:: \mu'_i = \sqrt{1 - r^2}\, u_i + r\, v_i, \qquad
                  u_i \in \operatorname{span}(\mu), \quad v_i \perp \mu, c .

        The residual r in [0, 1] is the norm of the part outside the span; the codes
        are kept.

        Example:
            >>> first, second = jax.random.split(jax.random.key(0))
            >>> letters = Alphabet.orthonormal(first, 4, 2, 10)
            >>> new = letters.unseen(second, 3, residual=0.6)
            >>> round(float(span_residual(new.patterns, letters.patterns)[0]), 4)
            0.6

        Source: Li et al. (2025), Theorem 5, condition 1.
        """
        check_key("key", key)
        check_positive_int("num_states", num_states)
        M, K, d = self.num_states, self.num_steps, self.dim
        if not 0 <= residual <= 1:
            raise ValueError(f"residual: expected a value in [0, 1], got {residual}")
        most = min(M, d - M - K) if residual else M
        if num_states > most:
            expected = "M' <= d - M - K" if most < M else "M' <= M"
            raise ValueError(
                f"num_states: expected {expected} = {most}, got {num_states}"
            )
        inner, outer = jax.random.split(key)
        dtype = self.patterns.dtype
        turn = jnp.linalg.qr(jax.random.normal(inner, (M, M), dtype))[0]
        inside = turn[:num_states] @ self.patterns
        if not residual:
            return Alphabet(inside, self.codes)
        used = jnp.concatenate([self.patterns, self.codes[:, :d]])
        fill = jax.random.normal(outer, (d - M - K, d), dtype)
        outside = jnp.linalg.qr(jnp.concatenate([used, fill]).T)[0].T[M + K :]
        mixed = jnp.sqrt(1 - residual**2) * inside + residual * outside[:num_states]
        return Alphabet(mixed, self.codes)

    def embed(
        self, x: Int[Array, "*n"], y: Int[Array, "*n"], step: Int[Array, "*n"]
    ) -> Float[Array, "*n _"]:
        """Columns (x; y) + c_step of numbered states; -1 is the zero vector."""
        rows = jnp.pad(self.patterns, ((0, 1), (0, 0)))
        return jnp.concatenate([rows[x], rows[y]], axis=-1) + self.codes[step]

    @exact_products
    def nearest(self, vector: Float[Array, " d"]) -> Int[Array, ""]:
        """State with the nearest pattern (greedy decoding); ties go to the first."""
        squares = jnp.sum(jnp.square(self.patterns), axis=1)
        return jnp.argmax(self.patterns @ vector - squares / 2)


@calculator
def span_residual(
    patterns: Float[ArrayLike, "..."], training_patterns: Float[ArrayLike, "..."]
) -> Float[Array, " n"]:
    r"""Part of each test pattern outside the span of the training patterns, in [0, 1].

    .. math:: r_i = \lVert (I - P)\, \mu'_i \rVert / \lVert \mu'_i \rVert,

    P the projector on the span of the training patterns, ``(M, d)``, which have to be
    linearly independent.

    Example:
        >>> found = span_residual(jnp.array([[3.0, 4.0]]), jnp.array([[2.0, 0.0]]))
        >>> round(float(found[0]), 4)
        0.8

    Source: Li et al. (2025), Theorem 5, condition 1.
    """
    check_shape("patterns", patterns, ("M'", "d"))
    patterns = widened(jnp.asarray(patterns))
    check_shape("training_patterns", training_patterns, ("M", patterns.shape[1]))
    number, dim = jnp.shape(training_patterns)
    if number > dim:
        raise ValueError(
            f"training_patterns: expected at most {dim} linearly independent patterns, "
            f"got {number}"
        )
    basis = jnp.linalg.qr(widened(training_patterns).T)[0]
    outside = patterns - (patterns @ basis) @ basis.T
    return jnp.linalg.norm(outside, axis=1) / jnp.linalg.norm(patterns, axis=1)
