"""Theorems 4, 5 and 6 of Li et al. as predicates, with the hidden constants named."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Num

from icltheory._checks import check_choice
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.chain_of_thought.alphabet import span_residual
from icltheory.chain_of_thought.measures import (
    condition_1,
    icl_error_limit,
    rho,
    rho_o,
    tau,
    tau_o,
)

__all__ = [
    "Requirement",
    "Theorem4",
    "Theorem5",
    "Theorem6",
    "theorem4_conditions",
    "theorem5_conditions",
    "theorem6_conditions",
]

FORMS = ("slides", "published")
Number = Num[ArrayLike, ""]


@pytree
class Requirement:
    """A quantity and the least value that a theorem asks of it.

    Attributes:
        actual: What there is.
        required: What is asked for.

    References:
        Verified by ``tests/chain_of_thought/test_theorems.py``.
    """

    actual: Scalar
    required: Scalar

    @property
    def holds(self) -> Bool[Array, "*B"]:
        """Whether there is enough."""
        return self.actual >= self.required


def _requirement(actual: Any, required: Any) -> Requirement:
    dtype = jnp.result_type(float)
    return Requirement(jnp.asarray(actual, dtype), jnp.asarray(required, dtype))


@pytree
class Theorem4:
    """The conditions under which training succeeds.

    Attributes:
        balanced: Every pattern is equally frequent in every step of a batch.
        prompt_length: Examples of a training prompt.
        iterations: Steps of descent.
        batch_size: Prompts a step.

    References:
        Li et al. (2025), arXiv 2410.02167, Theorem 4. Verified by
        ``tests/identities/test_li_theorem4.py``.
    """

    balanced: Bool[Array, "*B"]
    prompt_length: Requirement
    iterations: Requirement
    batch_size: Requirement

    @property
    def holds(self) -> Bool[Array, "*B"]:
        """Whether all of them hold."""
        parts = (self.prompt_length, self.iterations, self.batch_size)
        return self.balanced & jnp.all(
            jnp.stack([part.holds for part in parts]), axis=0
        )


def theorem4_conditions(
    *,
    num_examples: Number,
    num_iterations: Number,
    batch_size: Number,
    relevant_fraction: Number,
    num_states: int,
    num_steps: int,
    error: Number,
    pattern_counts: Num[ArrayLike, "_ _"] | None = None,
    tolerance: float = 0.0,
    length_constant: Number = 1.0,
    iteration_constant: Number = 1.0,
    batch_constant: Number = 1.0,
) -> Theorem4:
    r"""Whether the setting of a training is that of Theorem 4.

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
        Every condition by name.

    Example:
        >>> found = theorem4_conditions(
        ...     num_examples=20, num_iterations=400, batch_size=64, num_states=20,
        ...     relevant_fraction=0.4, num_steps=3, error=0.25)
        >>> round(float(found.iterations.required)), bool(found.iterations.holds)
        (559, False)

    References:
        Li et al. (2025), arXiv 2410.02167, Theorem 4. Verified by
        ``tests/identities/test_li_theorem4.py``.
    """
    alpha, eps = jnp.asarray(relevant_fraction), jnp.asarray(error)
    steps = alpha**-2 * num_steps**3 + num_states * num_steps * (1 / alpha + 1 / eps)
    balanced = jnp.asarray(True)
    if pattern_counts is not None:
        counts = jnp.asarray(pattern_counts)
        mean = jnp.mean(counts, axis=1, keepdims=True)
        balanced = jnp.all(jnp.abs(counts - mean) <= tolerance * mean)
    return Theorem4(
        balanced,
        _requirement(num_examples, length_constant / alpha),
        _requirement(num_iterations, iteration_constant * steps),
        _requirement(batch_size, batch_constant * eps**-2),
    )


@pytree
class Theorem5:
    """The conditions under which chain of thought is right.

    Attributes:
        patterns: Whether the test patterns are in the span of those of training, or, in
            the published form, have a large enough part in it.
        prompt_length: Examples of a test prompt.

    References:
        Li et al. (2025), arXiv 2410.02167, Theorem 5. Verified by
        ``tests/identities/test_li_theorem5.py``.
    """

    patterns: Bool[Array, "*B"]
    prompt_length: Requirement

    @property
    def holds(self) -> Bool[Array, "*B"]:
        """Whether both hold; then the error of chain of thought is 0."""
        return self.patterns & self.prompt_length.holds


def theorem5_conditions(
    steps: Float[ArrayLike, "..."],
    num_examples: Number,
    relevant_fraction: Number,
    *,
    form: str = "published",
    patterns: Float[ArrayLike, "..."] | None = None,
    training_patterns: Float[ArrayLike, "..."] | None = None,
    tolerance: float = 1e-6,
    least_part: float = 0.5,
    constant: Number = 1.0,
) -> Theorem5:
    r"""Whether Theorem 5 promises that chain of thought makes no error.

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
        Every condition by name.

    Raises:
        ValueError: If the form is unknown, one of the two kinds of patterns is missing,
            or a row is no distribution.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> found = theorem5_conditions(slide_transitions(), 41, 1.0, form="slides")
        >>> round(float(found.prompt_length.required), 1), bool(found.holds)
        (7.7, True)

    References:
        Li et al. (2025), arXiv 2410.02167, Theorem 5. Verified by
        ``tests/identities/test_li_theorem5.py``.
    """
    check_choice("form", form, FORMS)
    least = tau(steps) * jnp.asarray(relevant_fraction)
    if form == "published":
        least = least * rho(steps)
    fit = _patterns_fit(form, patterns, training_patterns, tolerance, least_part)
    return Theorem5(fit, _requirement(num_examples, constant * least**-2))


def _patterns_fit(form, patterns, training, tolerance, least_part):
    if (patterns is None) != (training is None):
        raise ValueError("patterns, training_patterns: expected both or neither")
    if patterns is None:
        return jnp.asarray(True)
    outside = span_residual(patterns, training)
    if form == "slides":
        return jnp.all(outside <= tolerance)
    return jnp.all(1 - jnp.square(outside) >= least_part**2)


@pytree
class Theorem6:
    """What is said of plain in-context learning.

    Attributes:
        condition_1: Whether the right answer is the most frequent one, input by input.
        prompt_length: Examples of a test prompt.
        error_limit: What the error tends to, 0 under Condition 1; the constant behind
            the Omega(1) otherwise.

    References:
        Li et al. (2025), arXiv 2410.02167, Theorem 6. Verified by
        ``tests/identities/test_li_theorem6.py``.
    """

    condition_1: Bool[Array, "*B M"]
    prompt_length: Requirement
    error_limit: Scalar

    @property
    def fails(self) -> Bool[Array, "*B"]:
        """Part 1: whether the error stays away from 0 at every prompt length."""
        return ~jnp.all(self.condition_1, axis=-1)

    @property
    def holds(self) -> Bool[Array, "*B"]:
        """Part 2: whether the error is 0."""
        return jnp.all(self.condition_1, axis=-1) & self.prompt_length.holds


def theorem6_conditions(
    steps: Float[ArrayLike, "..."],
    num_examples: Number,
    relevant_fraction: Number,
    *,
    form: str = "published",
    constant: Number = 1.0,
) -> Theorem6:
    r"""Whether Theorem 6 promises that plain in-context learning is right, or fails.

    .. math:: l_{ts} \ge C (\alpha' \tau_o^f)^{-2} \;\text{(slides)}, \qquad
              l_{ts} \ge C (\alpha' \tau_o^f \rho_o^f)^{-2} \;\text{(published)} .

    Args:
        steps: Transition matrices, ``(K, M', M')``.
        num_examples: :math:`l_{ts}`.
        relevant_fraction: alpha'.
        form: ``"slides"`` or ``"published"``.
        constant: C.

    Returns:
        Every condition by name, and the limit of the error.

    Raises:
        ValueError: If the form is unknown or a row is no distribution.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> found = theorem6_conditions(slide_transitions(), 321, 1.0)
        >>> bool(found.fails), float(found.error_limit)
        (True, 0.5)

    References:
        Li et al. (2025), arXiv 2410.02167, Theorem 6. Verified by
        ``tests/identities/test_li_theorem6.py``.
    """
    check_choice("form", form, FORMS)
    least = tau_o(steps) * jnp.asarray(relevant_fraction)
    if form == "published":
        least = least * rho_o(steps)
    length = _requirement(num_examples, constant * least**-2)
    return Theorem6(condition_1(steps), length, icl_error_limit(steps))
