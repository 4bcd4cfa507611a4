r"""Weights with which linear attention performs gradient descent on the prompt.

Tokens are :math:`h = [x; y]` with d_in inputs and d_out outputs, and the loss is

.. math::
    L(W) = \frac{c}{2} \sum_{i=1}^N \|W x_i - y_i\|^2 ,

where c is the ``scale`` given to ``apply`` or ``implicit_gd``. Layer t makes step t
with the mask ``"demos"``. The label slots of the demonstrations carry the residuals
:math:`y_i - W_t x_i`, that of the query carries minus the prediction.

Stability: stable.
"""

from icltheory.constructions.weights import (
    gd_plus_plus,
    gradient_descent,
    join_tokens,
    preconditioned_gradient_descent,
    read_prediction,
)

__all__ = [
    "gd_plus_plus",
    "gradient_descent",
    "join_tokens",
    "preconditioned_gradient_descent",
    "read_prediction",
]
