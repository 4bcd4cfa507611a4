"""A bound by the information in predictions, valid for every loss."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_open_unit, check_positive_int, check_shape
from icltheory._noted import check_values
from icltheory.bounds.supersample._estimates import coin_information
from icltheory.bounds.supersample._pairs import (
    Pairs,
    check_coins,
    in_and_out,
    shares,
    swapped,
)
from icltheory.bounds.supersample.records import SupersampleBound

__all__ = ["prediction_bound"]


@calculator
def prediction_bound(
    predictions: Real[ArrayLike, "_B _N 2"],
    labels: Real[ArrayLike, "_B _N 2"],
    chosen: Real[ArrayLike, "_B _N"],
    num_classes: int,
    *,
    confidence: float = 0.95,
) -> SupersampleBound:
    r"""Bound by the information in the predicted classes of a pair (f-CMI).

    .. math:: |\overline{error}| \le \frac1N \sum_{i=1}^N
        \sqrt{2 I(f_{i0}, f_{i1}; U_i \mid y_{i0}, y_{i1})} ,

    with the predicted classes f of both demonstrations and their labels y. It holds for
    every loss in [0, 1] of prediction and label; ``error`` is that of the 0-1 loss. It
    conditions on the labels, where f-CMI conditions on the whole supersample, and is
    smaller for that. It is never below :func:`~icltheory.bounds.evaluated_bound` of
    such a loss.

    Args:
        predictions: Predicted classes, ``(B, N, 2)``, whole numbers from 0.
        labels: Labels, ``(B, N, 2)``, whole numbers from 0.
        chosen: Which of the two was in the prompt, 0 or 1, ``(B, N)``.
        num_classes: Number of classes; the memory grows with its fourth power.
        confidence: Confidence level of ``upper``.

    Returns:
        The bound; its information has the shape ``(N,)``.

    Example:
        >>> import jax.numpy as jnp
        >>> labels = jnp.tile(jnp.array([[[0, 1]], [[1, 0]]]), (100, 1, 1))
        >>> memory = jnp.broadcast_to(labels[..., :1], labels.shape)
        >>> bound = prediction_bound(memory, labels, jnp.zeros((200, 1)), 2)
        >>> f"{bound.error:.3f} {bound.value:.3f}"
        '1.000 1.177'

    Source: Harutyunyan, Raginsky, Ver Steeg and Galstyan (2021), f-CMI. Proof: the
    derivations of supersample bounds.
    """
    predictions, labels = jnp.asarray(predictions), jnp.asarray(labels)
    check_shape("predictions", predictions, ("B", "N", 2))
    check_shape("labels", labels, predictions.shape)
    check_shape("chosen", chosen, predictions.shape[:2])
    check_positive_int("num_classes", num_classes)
    if not labels.size:
        raise ValueError(f"labels: expected at least one, got shape {labels.shape}")
    for name, classes in (("predictions", predictions), ("labels", labels)):
        check_values(
            name,
            classes,
            lambda one: (one >= 0) & (one < num_classes) & (one == one // 1),
            f"whole numbers from 0 to {num_classes - 1}",
        )
    check_coins(chosen)
    check_open_unit("confidence", confidence)
    kinds = num_classes**2
    answers = predictions.astype(int) * num_classes + labels.astype(int)
    taken, other = in_and_out(answers, chosen)
    law = shares(taken * kinds + other, kinds**2).reshape(-1, kinds, kinds)
    information = coin_information(*swapped(law))
    wrong = in_and_out(predictions != labels, chosen)
    difference = jnp.mean(wrong[1].astype(law.dtype) - wrong[0], axis=1)
    pairs = Pairs(law, jnp.arange(2.0), difference, confidence)
    return pairs.square_root(information)
