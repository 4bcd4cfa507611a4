r"""Functional gradient descent in a kernel's function space, as attention performs it.

An attention layer that acts on the label row alone, :math:`y_j \leftarrow y_j - r
\sum_{i \le N} k(x_j, x_i)\, y_i`, makes one step of gradient descent on the squared
loss in the space of k: residuals stand in the labels, minus the prediction at the
query. Three forms of it are here: weights of an attention stack, the recursion, and the
closed form.
"""

from icltheory.regression.kernel_descent.descent import (
    KernelDescent,
    descent_weights,
    functional_descent,
    kernel_descent,
)
from icltheory.regression.kernel_descent.risk import (
    gaussian_process_risk,
    kriging_risk,
)
from icltheory.regression.kernel_descent.stacks import kernel_descent_stack
from icltheory.regression.kernel_descent.system import KernelSystem

__all__ = [
    "KernelDescent",
    "KernelSystem",
    "descent_weights",
    "functional_descent",
    "gaussian_process_risk",
    "kernel_descent",
    "kernel_descent_stack",
    "kriging_risk",
]
