"""The record of a bound: its value, its terms, and why it is infinite."""

from icltheory._checks import concrete
from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Bool, Float, Int, Scalar

__all__ = ["REASONS", "Bound"]

REASONS = (
    "",
    "C_t is singular in the ambient space: rank {rank} < d = {dim}",
    "rank N-1 < support m: rank {rank} < m = {support}, so the support of C_t itself "
    "tells of the demonstrations",
    "b = N: the whole pool leaves no noise, C_t = 0",
    "rank {rank} < min(N - 1, m = {support}): the demonstrations are degenerate, or "
    "the working precision does not resolve C_t",
    "the trajectory or its covariance is not finite",
    "the prior does not cover the support: it is singular there",
)


@pytree
class Bound:
    r"""A bound on the expected generalisation error, term by term.

    .. math:: value = \sqrt{\frac{R^2}{N'} \sum_{t=1}^L T_t} ,

    N' = N, or N - M with a prior that has seen M demonstrations. Infinity is a value.

    Args:
        value: The bound in units of the loss.
        terms: :math:`T_1, \dots, T_L` in nats, ``(L,)``.
        support_dim: Dimension m_t of the space that the weights allow, ``(L,)``.
        rank: Rank of :math:`C_t`, the smallest over the prompts, ``(L,)``.
        vacuous: Whether the value is no better than the trivial bound.
        standard_error: Of the value, from the spread over prompts; NaN for one prompt.
        reason_code: Index into ``REASONS`` for each layer, 0 where the term is finite,
            ``(L,)``.
        dim: Dimension in which the terms were computed, ``(L,)``.
        notes: What is not a bound about it, in words; empty if it is one.

    References:
        Yao et al. (2024), Theorem 2.
        Verified by ``tests/identities/test_yao_theorem2.py``.
    """

    value: Scalar
    terms: Float[Array, " L"]
    support_dim: Int[Array, " L"]
    rank: Int[Array, " L"]
    vacuous: Bool[Array, ""]
    standard_error: Scalar
    reason_code: Int[Array, " L"]
    dim: Int[Array, " L"]
    notes: tuple[str, ...] = static_field(default=())

    @property
    def is_bound(self) -> bool:
        """Whether the formula is a proved bound; if not, ``notes`` has the reasons."""
        return not self.notes

    @property
    def reason(self) -> str:
        """Why the value is infinite, in words; empty if it is finite.

        Raises:
            ValueError: While the record is traced or batched; index it first.
        """
        codes = concrete(self.reason_code)
        if codes is None or codes.ndim != 1:
            raise ValueError("reason: expected one concrete bound, got a batch")
        lines = [
            f"layer {t}: "
            + REASONS[code].format(
                rank=int(self.rank[t]),
                support=int(self.support_dim[t]),
                dim=int(self.dim[t]),
            )
            for t, code in enumerate(codes)
            if code
        ]
        return "; ".join(lines)
