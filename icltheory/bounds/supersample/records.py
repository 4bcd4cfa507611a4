"""The record that every bound in the supersample setting returns."""

from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Bool, Float, Scalar

__all__ = ["SupersampleBound"]


@pytree
class SupersampleBound:
    r"""A bound on the generalisation error of an in-context learner.

    .. math:: \overline{error} = \frac1N \sum_{i=1}^N E\, [\ell(\bar z_i) - \ell(z_i)] ,

    the loss on the demonstration of pair i that the prompt does not hold, minus the
    loss on the one it holds. All numbers are about the quantised loss.

    Args:
        value: The bound with plug-in estimates. They are biased upwards.
        upper: Upper confidence limit of the bound, which is a bound on the error with
            the stated confidence; at most 1.
        information: Plug-in mutual information in nats: of each pair, ``(N,)``, or of
            a random pair, ``()``.
        error: Mean error over prompts and pairs.
        standard_error: Standard error of ``error``, from the spread over prompts.
        vacuous: Whether ``upper`` is 1, which every loss in [0, 1] satisfies.
        confidence: Confidence level of ``upper``.
    """

    value: Scalar
    upper: Scalar
    information: Float[Array, "..."]
    error: Scalar
    standard_error: Scalar
    vacuous: Bool[Array, ""]
    confidence: float = static_field(default=0.95)
