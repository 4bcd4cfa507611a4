"""Converts between models: Lemma 5.1, its inverse, and von Oswald's construction."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int, check_shape
from icltheory._noted import check_finite
from icltheory._typing import Array, Float
from icltheory.regression._linalg import Number, as_floats
from icltheory.regression.ltb.effective import EffectiveParameters
from icltheory.regression.ltb.gd_beta import GDBeta
from icltheory.regression.ltb.models import LSA, LTB

__all__ = [
    "effective_to_lsa",
    "effective_to_ltb",
    "gd_beta_to_ltb",
    "ltb_to_gd_beta",
    "von_oswald_lsa",
]


@calculator
def gd_beta_to_ltb(
    model: GDBeta,
    *,
    key_dim: int | None = None,
    value_dim: int = 1,
    hidden_dim: int = 1,
) -> LTB:
    r"""The LTB that computes a given GD-beta (Lemma 5.1).

    .. math:: W_K = [I \; 0], \quad W_Q = [\Gamma^\top \; 0], \quad W_P = e^\top, \quad
        W_V = [-\beta^\top \; 1], \quad W_1 = [\beta^\top \; 1], \quad W_2 = e^\top,

    with e = e_{d+1}. Note the transpose of Gamma. Larger widths get rows of zeros.

    Args:
        model: The GD-beta.
        key_dim: Rows d_k >= d of W_K and W_Q; d when left out.
        value_dim: Rows d_v >= 1 of W_P and W_V.
        hidden_dim: Rows d_f >= 1 of W_1 and W_2.

    Returns:
        The block: the same function of every prompt.

    Example:
        >>> block = gd_beta_to_ltb(GDBeta(jnp.ones(2), 2 * jnp.eye(2)))
        >>> float(block.predict(jnp.eye(2), jnp.array([1.0, 4.0]), jnp.ones(2)))
        5.0

    Source: Zhang, Wu and Bartlett (2024), Lemma 5.1.
    """
    beta, Gamma = jnp.asarray(model.beta), jnp.asarray(model.Gamma)
    d = model.dim
    key_dim = d if key_dim is None else key_dim
    for name, width, least in (
        ("key_dim", key_dim, d),
        ("value_dim", value_dim, 1),
        ("hidden_dim", hidden_dim, 1),
    ):
        check_positive_int(name, width)
        if width < least:
            raise ValueError(f"{name}: expected at least {least}, got {width}")
    one = jnp.ones(1, beta.dtype)
    label = _label_row(d, beta.dtype)
    return LTB(
        W_K=_rows(jnp.eye(d, d + 1, dtype=beta.dtype), key_dim),
        W_Q=_rows(jnp.pad(Gamma.T, ((0, 0), (0, 1))), key_dim),
        W_P=_rows(label, value_dim),
        W_V=_rows(jnp.concatenate([-beta, one])[None], value_dim),
        W_1=_rows(jnp.concatenate([beta, one])[None], hidden_dim),
        W_2=_rows(label, hidden_dim),
    )


@calculator
def ltb_to_gd_beta(model: LTB | EffectiveParameters) -> GDBeta:
    r"""The GD-beta computed by an LTB, if there is one, as for every best LTB.

    .. math:: \beta = c, \qquad \Gamma = v U^\top.

    It is the same function where u = 0 and p = -v c; a best LTB satisfies both on the
    inputs that come. Other blocks are no GD-beta: then the result is the step that
    their scores and values make from their own read-out, another function.

    Args:
        model: The block.

    Returns:
        The model.

    Example:
        >>> gd = GDBeta(jnp.ones(2), jnp.array([[1.0, 2.0], [3.0, 4.0]]))
        >>> ltb_to_gd_beta(gd_beta_to_ltb(gd)).Gamma.tolist()
        [[1.0, 2.0], [3.0, 4.0]]

    Source: Zhang, Wu and Bartlett (2024), Theorem 5.3.
    """
    parts = model.effective()
    U = jnp.asarray(parts.U)
    return GDBeta(parts.c, jnp.asarray(parts.v) * U.T)


@calculator
def effective_to_ltb(parts: EffectiveParameters) -> LTB:
    r"""An LTB with given effective parameters, c_0 = 1.

    .. math:: W_K = I_{d+1}, \quad W_Q = \begin{pmatrix} U & 0 \\ u^\top & 0
        \end{pmatrix}, \quad W_P = e^\top, \quad W_V = [p^\top \; v], \quad
        W_1 = [c^\top \; 1], \quad W_2 = e^\top.

    Args:
        parts: The parameters.

    Returns:
        The block, with d_k = d + 1 and d_v = d_f = 1.

    Example:
        >>> parts = GDBeta(jnp.ones(2), jnp.eye(2)).effective()
        >>> effective_to_ltb(parts).effective().p.tolist()
        [-1.0, -1.0]

    Source: Zhang, Wu and Bartlett (2024), Section 3.
    """
    attention = effective_to_lsa(parts)
    label = _label_row(parts.dim, parts.dtype)
    read_out = jnp.concatenate([jnp.asarray(parts.c), jnp.ones(1, parts.dtype)])[None]
    return LTB(
        attention.W_K, attention.W_Q, attention.W_P, attention.W_V, read_out, label
    )


@calculator
def effective_to_lsa(parts: EffectiveParameters) -> LSA:
    r"""An LSA with the values and scores of effective parameters; c is ignored.

    .. math:: W_K = I_{d+1}, \quad W_Q = \begin{pmatrix} U & 0 \\ u^\top & 0
        \end{pmatrix}, \quad W_P = e^\top, \quad W_V = [p^\top \; v].

    Args:
        parts: The parameters.

    Returns:
        The model, with d_k = d + 1 and d_v = 1.

    Example:
        >>> parts = GDBeta(jnp.zeros(2), jnp.eye(2)).effective()
        >>> effective_to_lsa(parts).W_V.tolist()
        [[-0.0, -0.0, 1.0]]

    Source: Zhang, Wu and Bartlett (2024), Section 3.
    """
    scores = jnp.concatenate([jnp.asarray(parts.U), jnp.asarray(parts.u)[None]])
    values = jnp.append(jnp.asarray(parts.p), jnp.asarray(parts.v))
    return LSA(
        W_K=jnp.eye(parts.dim + 1, dtype=parts.dtype),
        W_Q=jnp.pad(scores, ((0, 0), (0, 1))),
        W_P=_label_row(parts.dim, parts.dtype),
        W_V=values[None],
    )


@calculator
def von_oswald_lsa(start: Float[ArrayLike, "_d"], step_size: Number) -> LSA:
    r"""LSA that takes one gradient step on prompts whose query contains the start.

    .. math:: W_K = W_Q = \begin{pmatrix} I & 0 \\ 0 & 0 \end{pmatrix}, \quad
        W_P = e^\top, \quad W_V = \eta\, [w_0^\top \; -1].

    On tokens whose query is :math:`[x, -\langle w_0, x\rangle]` the last entry becomes
    minus the prediction of one step of size eta from w_0: where an LTB has its MLP, the
    data carry the start. On prompts of this package, whose query carries 0, it is minus
    the change that the step makes.

    Args:
        start: Start w_0.
        step_size: Step size eta.

    Returns:
        The layer. ``constructions.gradient_descent`` is the same in many layers.

    Example:
        >>> layer = von_oswald_lsa(jnp.zeros(2), 1.0)
        >>> float(-layer.predict(jnp.eye(2), jnp.array([2.0, 4.0]), jnp.ones(2)))
        3.0

    Source: von Oswald et al. (2023), Proposition 1.
    """
    check_shape("start", start, ("d",))
    check_finite("start", start)
    check_shape("step_size", step_size, ())
    check_finite("step_size", step_size)
    start, step_size = as_floats(start, step_size)
    slots = jnp.eye(start.shape[0], start.shape[0] + 1, dtype=start.dtype)
    values = step_size * jnp.append(start, -1.0)
    return LSA(slots, slots, _label_row(start.shape[0], start.dtype), values[None])


def _label_row(dim: int, dtype: jnp.dtype) -> Array:
    """e_{d+1} as a row."""
    return jnp.eye(dim + 1, dtype=dtype)[-1:]


def _rows(W: Array, count: int) -> Array:
    """Appends rows of zeros to a matrix up to ``count`` rows."""
    return jnp.pad(W, ((0, count - W.shape[0]), (0, 0)))
