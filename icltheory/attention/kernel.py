r"""The kernel view of softmax attention, Appendix B.2.

Softmax attention is linear attention in the feature space of the softmax kernel,
:math:`\exp(x^\top y) = \varphi(x)^\top \varphi(y)`. The features may be exact on the
keys at hand, a Taylor series, or positive random features.
"""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    check_choice,
    check_positive_int,
    check_shape,
    positive,
    scalar,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, FeatureMap, Float, PRNGKey, Scalar
from icltheory.attention._layer import as_projections, as_tokens, stacked


class KernelView(Record):
    r"""Softmax attention of the query as a linear map of its features.

    .. math::
        \hat h_{N+1} = h_{N+1} + \frac{1}{D'}\, T\, \varphi(W_Q h_{N+1}) , \qquad
        T = \sum_{i \le N} W_V h_i \otimes \varphi(W_K h_i) .

    ``operator`` is T alone: it depends on the demonstrations only and has rank at most
    rank H. The paper's :math:`\Delta W' = T / D'` depends on the query through D', so
    no trajectory of weights follows from it; D' is therefore kept apart.

    Args:
        operator: T, ``(n, F)``.
        query_features: :math:`\varphi(W_Q h_{N+1})`, ``(F,)``.
        normalizer: :math:`D' = \sum_{k \le N+1} \varphi(W_K h_k)^\top
            \varphi(W_Q h_{N+1})`, over N + 1 keys.
        h_query: The updated query token, ``(n,)``.

    Source: Yao et al. (2024), equation (12).
    """

    operator: Float[Array, "n F"]
    query_features: Float[Array, " F"]
    normalizer: Scalar
    h_query: Float[Array, " n"]

    @property
    def delta_W(self) -> Float[Array, "n F"]:
        r"""The paper's :math:`\Delta W' = T / D'`, which depends on the query."""
        return self.operator / self.normalizer


@calculator(static=("features", "degree", "num_features"), d_scale=scalar & positive)
def softmax_kernel_view(
    W_V: Float[ArrayLike, "_n _n"],
    W_K: Float[ArrayLike, "_n _n"],
    W_Q: Float[ArrayLike, "_n _n"],
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"],
    *,
    d_scale: Real[ArrayLike, ""],
    features: FeatureMap = "exact",
    degree: int = 4,
    num_features: int = 256,
    key: PRNGKey | None = None,
) -> KernelView:
    r"""Dual form of softmax attention for the query, equation (12).

    .. math::
        \hat h_{N+1} = h_{N+1} + \frac{1}{D'} \Big[ \sum_{i \le N} W_V h_i \otimes
        \varphi(k_i) \Big] \varphi(q) , \qquad
        k_i = W_K h_i / d_{scale}^{1/4}, \quad q = W_Q h_{N+1} / d_{scale}^{1/4} .

    ``"exact"`` takes the coordinates of the N + 1 keys at hand,
    :math:`\varphi(k_i) = e_i` and :math:`\varphi(q)_i = \exp(k_i^\top q)`, and equals
    :func:`~icltheory.attention.softmax_attention` with the mask ``"demos"``. The other
    two are approximations and need no key of the prompt to be known beforehand. The
    kernel is not shifted by its maximum: logits above the range of ``exp`` overflow.
    Cost O(N n F) with F features.

    Args:
        d_scale: The number under the root of equation (2).
        features: ``"exact"``, ``"taylor"`` or ``"positive"``.
        degree: Highest degree K of the Taylor features, F = 1 + n + ... + n^K.
        num_features: Number F of positive random features, which need a ``key``.

    Example:
        >>> import jax.numpy as jnp
        >>> I, H, h = jnp.eye(2), jnp.eye(2), jnp.array([0.5, 0.0])
        >>> for degree in (1, 3, 6):
        ...     view = softmax_kernel_view(
        ...         I, I, I, H, h, d_scale=2, features="taylor", degree=degree)
        ...     print(round(float(view.h_query[0]), 6))
        0.883407
        0.893564
        0.893677
        >>> exact = softmax_kernel_view(I, I, I, H, h, d_scale=2)
        >>> round(float(exact.h_query[0]), 6)
        0.893677

    Source: Yao et al. (2024), equations (10) to (12); Choromanski et al. (2021).
    """
    W_V, W_K, W_Q = as_projections(W_V, W_K, W_Q)
    check_choice("features", features, ("exact", "taylor", "positive"))
    H, h_query = as_tokens(H, h_query, W_V.shape[1])
    root = jnp.asarray(d_scale, H.dtype) ** 0.25
    keys, query = stacked(H, h_query) @ W_K.T / root, W_Q @ h_query / root
    if features == "exact":
        key_features = jnp.eye(keys.shape[0], dtype=keys.dtype)
        query_features = jnp.exp(keys @ query)
    elif features == "taylor":
        key_features = jax.vmap(lambda k: taylor_features(k, degree))(keys)
        query_features = taylor_features(query, degree)
    else:
        directions = _directions(key, num_features, query)
        key_features = jax.vmap(lambda k: positive_features(k, directions))(keys)
        query_features = positive_features(query, directions)
    operator = (H @ W_V.T).T @ key_features[:-1]
    normalizer = jnp.sum(key_features @ query_features)
    moved = h_query + operator @ query_features / normalizer
    return KernelView(operator, query_features, normalizer, moved)


@calculator(static=("degree",))
def taylor_features(x: Float[ArrayLike, " n"], degree: int) -> Float[Array, " F"]:
    r"""Features of the exponential series up to a degree.

    .. math::
        \varphi(x) = \big( x^{\otimes k} / \sqrt{k!} \big)_{k = 0, \dots, K} , \qquad
        \varphi(x)^\top \varphi(y) = \sum_{k \le K} (x^\top y)^k / k! .

    The remainder is at most :math:`e^{|z|} |z|^{K+1} / (K+1)!` with
    :math:`z = x^\top y`. There are 1 + n + ... + n^K features.

    Example:
        >>> import jax.numpy as jnp
        >>> taylor_features(jnp.array([1.0, 2.0]), 1).tolist()
        [1.0, 1.0, 2.0]

    Source: Yao et al. (2024), equation (11).
    """
    check_positive_int("degree", degree)
    x = jnp.asarray(x)
    power, parts = jnp.ones((1,), x.dtype), [jnp.ones((1,), x.dtype)]
    for k in range(1, degree + 1):
        power = jnp.outer(power, x).ravel()
        parts.append(power / math.sqrt(math.factorial(k)))
    return jnp.concatenate(parts)


@calculator
def positive_features(
    x: Float[ArrayLike, "_n"], directions: Float[ArrayLike, "F _n"]
) -> Float[Array, " F"]:
    r"""Positive random features of the softmax kernel.

    .. math::
        \varphi(x)_j = \exp\big(w_j^\top x - \|x\|^2 / 2\big) / \sqrt F , \qquad
        w_j \sim N(0, 1) .

    Unbiased: :math:`E\, \varphi(x)^\top \varphi(y) = \exp(x^\top y)`, with relative
    root mean square error :math:`\sqrt{(e^{\|x + y\|^2} - 1) / F}`.

    Example:
        >>> import jax.numpy as jnp
        >>> positive_features(jnp.zeros(2), jnp.ones((4, 2))).tolist()
        [0.5, 0.5, 0.5, 0.5]

    Source: Choromanski et al. (2021), lemma 1.
    """
    x, w = jnp.asarray(x), jnp.asarray(directions)
    check_shape("x", x, ("n",))
    check_shape("directions", w, ("F", len(x)))
    return jnp.exp(w @ x - jnp.sum(x**2) / 2) / math.sqrt(w.shape[0])


def _directions(key, num_features, query):
    check_positive_int("num_features", num_features)
    if key is None:
        raise ValueError("key: expected a key for positive features, got None")
    return jax.random.normal(key, (num_features, query.shape[0]), query.dtype)
