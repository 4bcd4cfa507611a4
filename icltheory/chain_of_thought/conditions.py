"""Theorems 4, 5 and 6 of Li et al. as predicates, with the hidden constants named."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice, check_shape
from icltheory._conditions import Condition, Conditions, at_least, at_most
from icltheory._names import ConditionForm
from icltheory._noted import check_positive, check_unit
from icltheory._typing import Float
from icltheory.chain_of_thought.alphabet import span_residual
from icltheory.chain_of_thought.measures import (
    condition_1,
    rho,
    rho_o,
    tau,
    tau_o,
)

__all__ = ["training_conditions", "cot_conditions", "icl_conditions"]

FORMS = ("slides", "published")
Number = Real[ArrayLike, ""]


@calculator(compiled=False)
def training_conditions(
    *,
    num_examples: Number,
    num_iterations: Number,
    batch_size: Number,
    relevant_fraction: Number,
    num_states: int,
    num_steps: int,
    error: Number,
    pattern_counts: Real[ArrayLike, "..."] | None = None,
    tolerance: float = 0.0,
    length_constant: Number = 1.0,
    iteration_constant: Number = 1.0,
    batch_constant: Number = 1.0,
) -> Conditions:
    r"""Conditions on the training (Li et al. 2025, Theorem 4).

    .. math:: l_{tr} \ge C_l \alpha^{-1}, \qquad T \ge C_T \bigl( \alpha^{-2} K^3 + M K
              (\alpha^{-1} + \epsilon^{-1}) \bigr), \qquad B \ge C_B \epsilon^{-2},

    and patterns that are equally frequent in every step. The paper hides the constants;
    it has T = Theta(...), of which this is the lower half.

    Args:
        num_examples: :math:`l_{tr}`.
        num_iterations: T.
        batch_size: B.
        relevant_fraction: alpha.
        num_states: M.
        num_steps: K.
        error: epsilon, the loss that is aimed at.
        pattern_counts: How often each pattern is the input of each step in a batch,
            ``(K, M)``; balanced in expectation if left out, as where starts are uniform
            and steps random permutations.
        tolerance: Largest relative deviation from equal counts.
        length_constant: :math:`C_l`.
        iteration_constant: :math:`C_T`.
        batch_constant: :math:`C_B`.

    Returns:
        The conditions ``balance``, ``training length``, ``steps`` and ``batch``.

    Example:
        >>> found = training_conditions(
        ...     num_examples=20, num_iterations=400, batch_size=64, num_states=20,
        ...     relevant_fraction=0.4, num_steps=3, error=0.25)
        >>> round(float(found["steps"].right)), found.failing
        (559, ('steps',))

    Source: Li et al. (2025), arXiv 2410.02167, Theorem 4.
    """
    check_positive("relevant_fraction", relevant_fraction)
    check_unit("relevant_fraction", relevant_fraction)
    check_positive("error", error)
    if pattern_counts is not None:
        check_shape("pattern_counts", pattern_counts, ("K", "M"))
    alpha, eps = (1.0 * jnp.asarray(x) for x in (relevant_fraction, error))
    steps = alpha**-2 * num_steps**3 + num_states * num_steps * (1 / alpha + 1 / eps)
    return Conditions(
        (
            at_most(
                "balance",
                "counts of patterns differ by <= tolerance",
                _imbalance(pattern_counts),
                tolerance,
            ),
            at_least(
                "training length",
                "l_tr >= C / alpha",
                num_examples,
                length_constant / alpha,
            ),
            at_least(
                "steps",
                "T >= C (K^3 / alpha^2 + M K (1 / alpha + 1 / eps))",
                num_iterations,
                iteration_constant * steps,
            ),
            at_least("batch", "B >= C eps^-2", batch_size, batch_constant * eps**-2),
        )
    )


def _imbalance(counts):
    """Largest relative deviation of a count from the mean of its step."""
    if counts is None:
        return jnp.zeros(())
    counts = jnp.asarray(counts)
    mean = jnp.mean(counts, axis=1, keepdims=True)
    return jnp.max(jnp.abs(counts - mean) / mean)


@calculator(compiled=False)
def cot_conditions(
    steps: Float[ArrayLike, "..."],
    num_examples: Number,
    relevant_fraction: Number,
    *,
    form: ConditionForm = "published",
    patterns: Float[ArrayLike, "..."] | None = None,
    training_patterns: Float[ArrayLike, "..."] | None = None,
    tolerance: float = 1e-6,
    least_part: float = 0.5,
    constant: Number = 1.0,
) -> Conditions:
    r"""Conditions for chain of thought without error (Li et al. 2025, Theorem 5).

    .. math:: l_{ts} \ge C (\alpha' \tau^f)^{-2} \;\text{(slides)}, \qquad
              l_{ts} \ge C (\alpha' \tau^f \rho^f)^{-2} \;\text{(published)} .

    The slides want each test pattern to be a linear combination of the training
    patterns, the published form a component in their span that is not small. Without
    rho no constant C serves all tasks: see
    :func:`~icltheory.chain_of_thought.sufficient_examples`.

    Args:
        steps: Transition matrices, ``(K, M', M')``.
        num_examples: :math:`l_{ts}`.
        relevant_fraction: alpha'.
        form: ``"slides"`` or ``"published"``.
        patterns: TSR patterns, ``(M', d)``; taken to be in the span if left out.
        training_patterns: TRR patterns, ``(M, d)``.
        tolerance: Largest part outside the span, relative, for the form of the slides.
        least_part: Least part inside the span, for the published form.
        constant: C.

    Returns:
        The conditions ``patterns`` and ``test length``.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> found = cot_conditions(slide_transitions(), 41, 1.0, form="slides")
        >>> round(float(found["test length"].right), 1), bool(found.holds)
        (7.7, True)

    Source: Li et al. (2025), arXiv 2410.02167, Theorem 5.
    """
    check_choice("form", form, FORMS)
    check_unit("relevant_fraction", relevant_fraction)
    least = tau(steps) * jnp.asarray(relevant_fraction)
    if form == "published":
        least = least * rho(steps)
    outside = _outside(patterns, training_patterns)
    if form == "slides":
        fit = at_most("patterns", "part outside the span <= 0", outside, tolerance)
    else:
        inside = jnp.sqrt(jnp.maximum(1 - jnp.square(outside), 0))
        fit = at_least("patterns", "part in the span >= C", inside, least_part)
    return Conditions((fit, _test_length(form, "tau", num_examples, least, constant)))


def _outside(patterns, training):
    """Largest relative part of a test pattern outside the span of the others."""
    if (patterns is None) != (training is None):
        got = "patterns" if training is None else "training_patterns"
        raise ValueError(
            f"patterns, training_patterns: expected both or neither, got {got} alone"
        )
    if patterns is None:
        return jnp.zeros(())
    return jnp.max(span_residual(patterns, training))


def _test_length(form, name, num_examples, least, constant):
    gap = " " + name.replace("tau", "rho") if form == "published" else ""
    inequality = f"l_ts >= C (alpha' {name}{gap})^-2"
    return at_least("test length", inequality, num_examples, constant * least**-2)


@calculator(compiled=False)
def icl_conditions(
    steps: Float[ArrayLike, "..."],
    num_examples: Number,
    relevant_fraction: Number,
    *,
    form: ConditionForm = "published",
    constant: Number = 1.0,
) -> Conditions:
    r"""Conditions for plain in-context learning (Li et al. 2025, Theorem 6).

    .. math:: l_{ts} \ge C (\alpha' \tau_o^f)^{-2} \;\text{(slides)}, \qquad
              l_{ts} \ge C (\alpha' \tau_o^f \rho_o^f)^{-2} \;\text{(published)} .

    Args:
        steps: Transition matrices, ``(K, M', M')``.
        num_examples: :math:`l_{ts}`.
        relevant_fraction: alpha'.
        form: ``"slides"`` or ``"published"``.
        constant: C.

    Returns:
        The conditions ``condition 1``, with the share of inputs for which it holds, and
        ``test length``. Where the first fails, the error stays above 0 at any length
        (part 1): its limit is :func:`~icltheory.chain_of_thought.icl_error_limit`.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> found = icl_conditions(slide_transitions(), 321, 1.0)
        >>> found.failing
        ('condition 1',)

    Source: Li et al. (2025), arXiv 2410.02167, Theorem 6.
    """
    check_choice("form", form, FORMS)
    check_unit("relevant_fraction", relevant_fraction)
    least = tau_o(steps) * jnp.asarray(relevant_fraction)
    if form == "published":
        least = least * rho_o(steps)
    right = condition_1(steps)
    most = Condition(
        "condition 1",
        "the right answer is the likeliest",
        jnp.mean(right.astype(float)),
        1.0,
        jnp.all(right),
    )
    return Conditions(
        (most, _test_length(form, "tau_o", num_examples, least, constant))
    )
