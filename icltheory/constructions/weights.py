"""Weights of attention layers whose steps are gradient descent, and their tokens."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._checks import check_positive_int, check_shape, finite
from icltheory._core import calculator
from icltheory._typing import Array, Float
from icltheory.attention import LayerOutput, LinearAttentionStack


@calculator
def join_tokens(
    X: Float[ArrayLike, "_N _d_in"],
    Y: Float[ArrayLike, "_N _d_out"],
    x_query: Float[ArrayLike, "_d_in"],
    W_0: Float[ArrayLike, "_d_out _d_in"] | None = None,
) -> LayerOutput:
    r"""Tokens :math:`[x_i;\, y_i - W_0 x_i]` and :math:`[x_{N+1};\, -W_0 x_{N+1}]`.

    :math:`W_0` are the weights before the first step, zero by default.

    Example:
        >>> import jax.numpy as jnp
        >>> H, h = join_tokens(jnp.ones((1, 2)), jnp.array([[3.0]]), jnp.ones(2))
        >>> H.tolist(), h.tolist()
        ([[1.0, 1.0, 3.0]], [1.0, 1.0, 0.0])

    Source: von Oswald et al. (2023), proposition 1.
    """
    X, Y, x_query = jnp.asarray(X), jnp.asarray(Y), jnp.asarray(x_query)
    check_shape("X", X, ("N", "d_in"))
    check_shape("Y", Y, (X.shape[0], "d_out"))
    check_shape("x_query", x_query, (X.shape[1],))
    d_out, d_in = Y.shape[1], X.shape[1]
    W = jnp.zeros((d_out, d_in), X.dtype) if W_0 is None else jnp.asarray(W_0)
    check_shape("W_0", W, (d_out, d_in))
    return LayerOutput(
        jnp.concatenate([X, Y - X @ W.T], axis=1),
        jnp.concatenate([x_query, jnp.zeros(d_out, W.dtype) - W @ x_query]),
    )


@calculator(static=("d_in",))
def read_prediction(
    h_query: Float[ArrayLike, "*depths n"], d_in: int
) -> Float[Array, "*depths d_out"]:
    r"""Prediction :math:`W_t x_{N+1}`: minus the label slot of the query.

    Example:
        >>> import jax.numpy as jnp
        >>> read_prediction(jnp.array([1.0, 1.0, -3.0]), 2).tolist()
        [3.0]

    Source: von Oswald et al. (2023), proposition 1.
    """
    check_positive_int("d_in", d_in)
    width = jnp.shape(h_query)[-1]
    if not 0 < d_in < width:
        raise ValueError(f"d_in: expected 0 < d_in < {width}, got {d_in}")
    return -jnp.asarray(h_query)[..., d_in:]


@calculator(static=("d_in", "d_out"), step_sizes=finite)
def gradient_descent(
    step_sizes: Float[ArrayLike, "_L"], d_in: int, d_out: int = 1
) -> LinearAttentionStack:
    r"""Weights of L layers that take L gradient-descent steps.

    .. math::
        W_K = W_Q = \begin{pmatrix} 1 & 0 \\ 0 & 0 \end{pmatrix} , \quad
        W_V^t = -\eta_t \begin{pmatrix} 0 & 0 \\ 0 & 1 \end{pmatrix}
        \;\Rightarrow\;
        W_t = W_{t-1} - \eta_t \nabla L(W_{t-1}) .

    :math:`G_t` of Theorem 1 is :math:`\eta_t \nabla L` in the label rows.

    Example:
        >>> import jax.numpy as jnp
        >>> X, Y = jnp.array([[1.0], [2.0]]), jnp.array([[2.0], [4.0]])
        >>> stack = gradient_descent(jnp.full(30, 0.3), d_in=1)
        >>> out = stack.apply(*join_tokens(X, Y, jnp.ones(1)), scale=1 / 2)
        >>> read_prediction(out.h_query, 1)[jnp.array([1, 30])].round(6).tolist()
        [[1.5], [2.0]]

    Source: von Oswald et al. (2023), proposition 1.
    """
    check_shape("step_sizes", step_sizes, ("L",))
    eta = jnp.asarray(step_sizes)
    inputs, labels = _slots(len(eta), d_in, d_out, eta.dtype)
    W_V = -eta[:, None, None] * labels
    return LinearAttentionStack(W_V=W_V, W_K=inputs, W_Q=inputs)


@calculator(static=("d_out",))
def preconditioned_gradient_descent(
    preconditioners: Float[ArrayLike, "_L _d_in _d_in"], d_out: int = 1
) -> LinearAttentionStack:
    r"""Weights of L layers that take L steps of preconditioned gradient descent.

    .. math::
        W_K = \begin{pmatrix} 1 & 0 \\ 0 & 0 \end{pmatrix} , \quad
        W_Q^t = \begin{pmatrix} A_t^\top & 0 \\ 0 & 0 \end{pmatrix} , \quad
        W_V = -\begin{pmatrix} 0 & 0 \\ 0 & 1 \end{pmatrix}
        \;\Rightarrow\;
        W_t = W_{t-1} - \nabla L(W_{t-1}) A_t^\top .

    With :math:`A_t` the inverse of :math:`c \sum_i x_i x_i^\top` it is Newton's step.

    Example:
        >>> import jax.numpy as jnp
        >>> stack = preconditioned_gradient_descent(jnp.array([[[0.5]]]))
        >>> stack.W_Q[0].tolist()
        [[0.5, 0.0], [0.0, 0.0]]

    Source: Ahn et al. (2023), L iterations of preconditioned gradient descent.
    """
    A = jnp.asarray(preconditioners)
    check_shape("preconditioners", A, ("L", "d_in", "d_in"))
    inputs, labels = _slots(A.shape[0], A.shape[1], d_out, A.dtype)
    W_Q = jnp.pad(jnp.swapaxes(A, 1, 2), ((0, 0), (0, d_out), (0, d_out)))
    return LinearAttentionStack(W_V=-labels, W_K=inputs, W_Q=W_Q)


@calculator(static=("d_in", "d_out"), step_sizes=finite, input_steps=finite)
def gd_plus_plus(
    step_sizes: Float[ArrayLike, "_L"],
    input_steps: Float[ArrayLike, "_L"],
    d_in: int,
    d_out: int = 1,
) -> LinearAttentionStack:
    r"""Weights of GD++: gradient descent whose layers also shrink the inputs.

    .. math::
        x_i \leftarrow \Big(1 - \gamma_t\, c \sum_{j=1}^N x_j x_j^\top\Big) x_i , \qquad
        W_V^t = -\begin{pmatrix} \gamma_t & 0 \\ 0 & \eta_t \end{pmatrix} .

    The ``input_steps`` :math:`\gamma_t` condition the inputs better from layer to
    layer. Residuals and inputs move at the same time; the query moves as the inputs do.

    Example:
        >>> import jax.numpy as jnp
        >>> stack = gd_plus_plus(jnp.array([0.5]), jnp.array([0.1]), d_in=1)
        >>> jnp.diag(stack.W_V[0]).tolist()
        [-0.1, -0.5]

    Source: von Oswald et al. (2023), GD++.
    """
    check_shape("step_sizes", step_sizes, ("L",))
    eta, gamma = jnp.asarray(step_sizes), jnp.asarray(input_steps)
    check_shape("input_steps", gamma, eta.shape)
    inputs, labels = _slots(len(eta), d_in, d_out, jnp.result_type(eta, gamma))
    W_V = -(gamma[:, None, None] * inputs + eta[:, None, None] * labels)
    return LinearAttentionStack(W_V=W_V, W_K=inputs, W_Q=inputs)


def _slots(layers, d_in, d_out, dtype) -> tuple[Array, Array]:
    """Projections on the input slot and on the label slot, one per layer."""
    check_positive_int("d_in", d_in)
    check_positive_int("d_out", d_out)
    n = d_in + d_out
    inputs = jnp.pad(jnp.eye(d_in, dtype=dtype), ((0, d_out), (0, d_out)))
    labels = jnp.eye(n, dtype=dtype) - inputs
    shape = (layers, n, n)
    return jnp.broadcast_to(inputs, shape), jnp.broadcast_to(labels, shape)
