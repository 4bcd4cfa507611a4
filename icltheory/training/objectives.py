"""What pretraining minimises: the in-context loss over the prefixes of a prompt."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from icltheory._checks import check_choice, check_shape

__all__ = ["in_context_loss"]

_LOSSES = {
    "squared": lambda guess, y: jnp.square(guess - y),
    "logistic": lambda guess, y: optax.sigmoid_binary_cross_entropy(guess, (y + 1) / 2),
    "hinge": lambda guess, y: jax.nn.relu(1 - y * guess),
}


def in_context_loss(
    predictions: Float[Array, "B P"],
    y: Float[Array, "B P"],
    active_points: Int[Array, ""] | int,
    loss: str = "squared",
) -> Float[Array, ""]:
    r"""In-context loss over the active points, Garg's training objective.

    .. math:: \frac{1}{B\,p} \sum_{b=1}^{B} \sum_{k=0}^{p-1} \ell(\hat y_{bk}, y_{bk})

    with :math:`\ell` the squared error, or for labels :math:`y = \pm 1` the logistic
    loss :math:`\log(1 + e^{-y \hat y})` or the hinge loss
    :math:`\max(0, 1 - y \hat y)`.

    Args:
        predictions: :math:`\hat y_{bk}`, made from the first ``k`` pairs.
        y: True answers.
        active_points: Number :math:`p` of leading points that count.
        loss: ``"squared"``, ``"logistic"`` or ``"hinge"``.

    Returns:
        The mean loss.

    Raises:
        ValueError: if the shapes differ or ``loss`` is unknown.

    Example:
        >>> import jax.numpy as jnp
        >>> float(in_context_loss(jnp.zeros((1, 3)), jnp.array([[1.0, 2.0, 9.0]]), 2))
        2.5

    References:
        Garg et al. 2022, equation (2); Li et al. 2024, Section 2 (hinge). Verified by
        ``tests/training/test_objectives.py``.
    """
    check_choice("loss", loss, tuple(_LOSSES))
    check_shape("predictions", predictions, y.shape)
    losses = _LOSSES[loss](predictions, y)
    active = (jnp.arange(y.shape[1]) < active_points).astype(losses.dtype)
    return jnp.sum(losses * active[None]) / (y.shape[0] * jnp.sum(active))
