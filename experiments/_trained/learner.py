"""The linear stack that can learn several steps of gradient descent."""

from typing import Any

from icltheory.models import LinearStack

__all__ = ["GDStack"]


class GDStack(LinearStack):
    r"""A linear stack that answers minus the label slot, with one factor 1/N for all.

    .. math:: \hat y = -e_{d+1}^\top h_{N+1}^L

    In several layers of gradient descent the label slots of the demonstrations carry
    residuals, so that of the query carries minus the prediction. With the plus sign the
    same weights would have to grow the residuals. A prefix of k < N pairs keeps the
    factor 1/N: with 1/k a single large example would make the output, a polynomial of
    degree (3^L - 1) / 2 in the second moments, explode.

    Args:
        num_examples: The N of the factor.

    References:
        Ahn et al. 2023, Section 2 (the read-out); von Oswald et al. 2023.
    """

    num_examples: int = 20

    def _answer(self, X, y, query, count) -> Any:
        return -super()._answer(X, y, query, self.num_examples)
