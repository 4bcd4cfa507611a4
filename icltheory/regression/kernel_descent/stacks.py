"""Weights with which attention layers perform kernel gradient descent."""

from jax.typing import ArrayLike

from icltheory import constructions
from icltheory._calculators import calculator
from icltheory._typing import Float
from icltheory.attention import KernelAttentionStack, SoftmaxAttentionStack
from icltheory.attention.nonlinear import Kernel

__all__ = ["kernel_descent_stack"]


@calculator(compiled=False)
def kernel_descent_stack(
    step_sizes: Float[ArrayLike, "_L"], d_in: int, kernel: Kernel
) -> KernelAttentionStack | SoftmaxAttentionStack:
    r"""Weights of L layers that take L steps of functional gradient descent.

    .. math::
        W_K = W_Q = (I \;\; 0) , \qquad
        W_V^t = - r_t \begin{pmatrix} 0 & 0 \\ 0 & 1 \end{pmatrix} ,

    the matrices of gradient descent with linear attention; the kernel does the rest.
    Read the answer with :func:`icltheory.constructions.read_prediction` from tokens
    that :func:`icltheory.constructions.join_tokens` made, under the mask ``"demos"``.

    Args:
        step_sizes: :math:`r_1, \dots, r_L`, ``(L,)``.
        d_in: Width of the inputs.
        kernel: ``"linear"``, ``"relu"``, ``"exp"``, ``"rbf"`` or a function of two
            vectors; ``"softmax"`` for a softmax stack, whose steps are only roughly
            those of the exponential kernel.

    Returns:
        The stack, of width d_in + 1.

    Example:
        >>> import jax.numpy as jnp
        >>> stack = kernel_descent_stack(jnp.full(3, 0.5), 1, "linear")
        >>> X, Y, x = jnp.array([[1.0]]), jnp.array([[3.0]]), jnp.array([2.0])
        >>> out = stack.apply(*constructions.join_tokens(X, Y, x))
        >>> constructions.read_prediction(out.h_query, 1)[1:].ravel().tolist()
        [3.0, 4.5, 5.25]

    Source: Cheng et al. (2024), the construction; von Oswald et al. (2023), proposition
    1.
    """
    linear = constructions.gradient_descent(step_sizes, d_in)
    if kernel == "softmax":
        weights = linear.W_V, linear.W_K, linear.W_Q
        return SoftmaxAttentionStack(*weights, d_scale=1)
    # Keys and queries contain only the inputs, so that a user's function sees no label
    # slot.
    inputs = linear.W_K[:, :d_in]
    return KernelAttentionStack(linear.W_V, inputs, inputs, kernel)
