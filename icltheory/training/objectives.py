"""What pretraining minimises: the in-context loss over the prefixes of a prompt."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from icltheory._checks import check_choice, check_shape

__all__ = ["in_context_loss"]


def in_context_loss(
    predictions: Float[Array, "B P"],
    y: Float[Array, "B P"],
    active_points: Int[Array, ""] | int,
    targets: str = "real",
) -> Float[Array, ""]:
    r"""In-context loss over the active points, Garg's training objective.

    .. math:: \frac{1}{B\,p} \sum_{b=1}^{B} \sum_{k=0}^{p-1} \ell(\hat y_{bk}, y_{bk})

    with :math:`\ell` the squared error for real targets, and the logistic loss of
    :math:`\hat y` against :math:`(y+1)/2` for signs.

    Args:
        predictions: :math:`\hat y_{bk}`, made from the first ``k`` pairs.
        y: True answers.
        active_points: Number :math:`p` of leading points that count.
        targets: ``"real"`` or ``"sign"``.

    Returns:
        The mean loss.

    Raises:
        ValueError: if the shapes differ or ``targets`` is unknown.

    Example:
        >>> import jax.numpy as jnp
        >>> float(in_context_loss(jnp.zeros((1, 3)), jnp.array([[1.0, 2.0, 9.0]]), 2))
        2.5

    References:
        Garg et al. 2022, equation (2). Verified by
        ``tests/training/test_objectives.py``.
    """
    check_choice("targets", targets, ("real", "sign"))
    check_shape("predictions", predictions, y.shape)
    if targets == "real":
        losses = jnp.square(predictions - y)
    else:
        losses = optax.sigmoid_binary_cross_entropy(predictions, (y + 1) / 2)
    active = (jnp.arange(y.shape[1]) < active_points).astype(losses.dtype)
    return jnp.sum(losses * active[None]) / (y.shape[0] * jnp.sum(active))
