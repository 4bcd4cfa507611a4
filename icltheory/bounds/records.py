"""The record of a bound: its value, its terms, and why it is infinite."""

from typing import NamedTuple

import equinox as eqx
import numpy as np

from icltheory._checks import concrete
from icltheory._core import Record
from icltheory._typing import Array, Bool, Float, Int, Scalar

# Reasons for an infinite term, by ``Bound.reason_code``; the first stands for a finite
# one.
REASONS = (
    "",
    "C_t is singular in the ambient space: rank {rank} < d = {dim}",
    "rank N-1 < support m: rank {rank} < m >= {support}, so the support of C_t itself "
    "tells of the demonstrations",
    "b = N: the whole pool leaves no noise, C_t = 0",
    "rank {rank} < min(N - 1, m = {support}) in {degenerate} of {prompts} prompts: the "
    "demonstrations are degenerate, as where labels are an exact linear function of "
    "the inputs (add label noise or a jitter), or {dtype} does not resolve C_t, as "
    "where the scale is not 1 / N or the weights make W_t large",
    "the trajectory or its covariance is not finite",
    "the prior does not cover the support: it is singular there",
    "M = {held_out} <= m + 2 = {least}: the mean over prompts is infinite, as that of "
    "the inverse of the covariance of M demonstrations is",
)

# A larger share of one prompt in a mean is mentioned in the summary, and so is a
# smaller number of held-out demonstrations beyond m: their terms are skewed.
_RARE = 0.1
_SKEWED = 30


class Assumption(NamedTuple):
    """One assumption of the theorem.

    Attributes:
        text: What is assumed.
        holds: Whether it does; ``None`` where it is the user's word.
    """

    text: str
    holds: bool | None


class Bound(Record):
    r"""A bound on the expected generalisation error, term by term.

    .. math:: value = \sqrt{\frac{R^2}{N'} \sum_{t=1}^L T_t} ,

    N' = N, or N - M with a prior that has seen M demonstrations. Infinity is a value.

    ``value`` is an estimate: its expectations are means over the prompts. ``upper`` is
    an approximate limit: the bound with the true expectations lies below it in a share
    ``confidence`` of samples of prompts, if these are enough for Student's limits. They
    are not where rare prompts decide the means, as for several layers of large weights:
    :math:`G_t` is a polynomial in the tokens of a degree that triples with each layer.
    Then ``value``, ``standard_error`` and ``upper`` are all too small; a large
    ``largest_share`` is a sign of it. Nor are they with M < m_t + 30: of 64 prompts
    with Gaussian gradients in 5 dimensions, 56, 22, 14, 10 and 8 % of limits at
    confidence 95 % lie below the truth for M - m = 3, 4, 6, 10 and 20 or more.

    Args:
        value: The bound in units of the loss.
        terms: :math:`T_1, \dots, T_L` in nats, ``(L,)``.
        support_dim: Dimension m_t of the space that the weights allow, ``(L,)``; for
            n > 512 and without jitter the smaller of m_t and N, unless it was given.
        rank: Rank of :math:`C_t`, the smallest over the prompts, ``(L,)``.
        vacuous: Whether the value is no better than the trivial bound.
        standard_error: Of the value, from the spread over prompts; NaN for one prompt.
        reason_code: Index into ``REASONS`` for each layer, 0 where the term is finite,
            ``(L,)``.
        dim: Dimension in which the terms were computed, ``(L,)``.
        upper: One-sided confidence limit of the value: Student's limits of both
            expectations in every layer, by a union bound; NaN for one prompt, with the
            logarithm inside the expectation, and for a prior with a covariance where it
            or its mean is fitted to the prompts.
        largest_share: Largest share of one prompt in the mean of
            :math:`\|G_t - \tilde g_t\|_F^2 + \operatorname{tr} C_t`, ``(L,)``; in the
            mean of the terms for other priors and with the logarithm inside.
        degenerate: Number of prompts where the rank of :math:`C_t` is below
            min(N - 1, m_t), ``(L,)``.
        confidence: Confidence level of ``upper``.
        bias: Direction of the bias of ``value``; empty where there is none.
        assumptions: What the theorem assumes, and whether it holds.
        num_prompts: Number B of prompts.
        held_out: Number M of demonstrations that the prior has seen, or ``None``.

    Source: Yao et al. (2024), Theorem 2.
    """

    value: Scalar
    terms: Float[Array, " L"]
    support_dim: Int[Array, " L"]
    rank: Int[Array, " L"]
    vacuous: Bool[Array, ""]
    standard_error: Scalar
    reason_code: Int[Array, " L"]
    dim: Int[Array, " L"]
    upper: Scalar
    largest_share: Float[Array, " L"]
    degenerate: Int[Array, " L"]
    confidence: float = eqx.field(static=True, default=0.95)
    bias: str = eqx.field(static=True, default="")
    assumptions: tuple[Assumption, ...] = eqx.field(static=True, default=())
    num_prompts: int = eqx.field(static=True, default=1)
    held_out: int | None = eqx.field(static=True, default=None)

    @property
    def failing(self) -> tuple[str, ...]:
        """Assumptions that fail; if there are any, the value is not a proved bound."""
        return tuple(one.text for one in self.assumptions if one.holds is False)

    @property
    def is_bound(self) -> bool:
        """Whether no assumption of the theorem is known to fail."""
        return not self.failing

    def summary(self) -> str:
        """Describes the bound in a few lines of text."""
        why = self.reason  # raises for a batch
        lines = [f"bound {float(self.value):.4g}{', vacuous' * bool(self.vacuous)}"]
        if why:
            lines.append(f"infinite: {why}")
        elif np.isnan(self.standard_error):
            lines.append("estimated from one prompt: no standard error and no limit")
        else:
            estimate = f"estimated, standard error {float(self.standard_error):.2g}"
            lines.append(f"{estimate}; {self.bias}" if self.bias else estimate)
            if not np.isnan(self.upper):
                share = f"{100 * self.confidence:g} %"
                limit = f"at most {float(self.upper):.4g} with confidence {share}"
                lines.append(f"{limit}, approximately")
            least = int(np.max(self.support_dim)) + _SKEWED
            if self.held_out is not None and self.held_out < least:
                lines.append(
                    f"M = {self.held_out} < m + {_SKEWED} = {least}: rare prompts "
                    "decide the mean, so few prompts give too small a limit"
                )
            layer = int(np.argmax(self.largest_share))
            largest = float(self.largest_share[layer])
            if largest > max(_RARE, 3 / self.num_prompts):
                lines.append(
                    f"layer {layer}: one of {self.num_prompts:,} prompts is "
                    f"{100 * largest:.0f} % of a mean, so all of this may be too small"
                )
        words = {True: "holds", False: "FAILS", None: "assumed"}
        lines += [f"{words[one.holds]}: {one.text}" for one in self.assumptions]
        return "\n".join(lines)

    @property
    def reason(self) -> str:
        """Explains in words why the value is infinite; empty if it is finite."""
        codes = concrete(self.reason_code)
        if codes is None or codes.ndim != 1:
            got = "a traced one" if codes is None else "a batch"
            raise ValueError(f"reason: expected one concrete bound, got {got}")
        found: dict[str, list[int]] = {}
        for t, code in enumerate(codes):
            if code:
                said = REASONS[code].format(
                    rank=int(self.rank[t]),
                    support=int(self.support_dim[t]),
                    dim=int(self.dim[t]),
                    degenerate=f"{int(self.degenerate[t]):,}",
                    prompts=f"{self.num_prompts:,}",
                    dtype=self.value.dtype,
                    held_out=self.held_out,
                    least=int(self.support_dim[t]) + 2,
                )
                found.setdefault(said, []).append(t)
        return "; ".join(
            f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}: {said}"
            for said, layers in found.items()
        )
