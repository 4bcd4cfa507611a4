"""Theorems 4, 5 and 6 of Li et al. as predicates, with the hidden constants named."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_choice, check_shape, checked, positive, scalar
from icltheory._core import calculator
from icltheory._typing import ConditionForm
from icltheory.chain_of_thought.alphabet import Alphabet, span_residual
from icltheory.chain_of_thought.tasks import PermutationTasks, ReasoningTask
from icltheory.patterns.conditions import Condition, Conditions, at_least, at_most

FORMS = ("slides", "published")
Number = Real[ArrayLike, ""]


@calculator(compiled=False, loss=scalar & positive)
def training_conditions(
    tasks: PermutationTasks,
    num_examples: Number,
    *,
    num_iterations: Number,
    batch_size: Number,
    loss: Number,
    pattern_counts: Real[ArrayLike, "..."] | None = None,
    tolerance: Number = 0.0,
    constants: Real[ArrayLike, "3"] | tuple[float | int, ...] = (1.0, 1.0, 1.0),
) -> Conditions:
    r"""Conditions on the training (Theorem 4).

    .. math:: l_{tr} \ge C_l \alpha^{-1}, \qquad T \ge C_T \bigl( \alpha^{-2} K^3 + M K
              (\alpha^{-1} + \epsilon^{-1}) \bigr), \qquad B \ge C_B \epsilon^{-2},

    for l_tr examples, T iterations, batches of B and a loss epsilon that is aimed at,
    and patterns that are equally frequent in every step: the conditions ``balance``,
    ``training length``, ``steps`` and ``batch``. The paper hides the constants; it has
    T = Theta(...), of which this is the lower half.

    Args:
        pattern_counts: How often each pattern is the input of each step in a batch,
            ``(K, M)``; if ``None`` balanced, as in expectation.
        tolerance: Largest relative deviation from equal counts.
        constants: :math:`C_l, C_T, C_B`.

    Example:
        >>> tasks = PermutationTasks(Alphabet.standard(20, 3), 0.4)
        >>> found = training_conditions(
        ...     tasks, 20, num_iterations=400, batch_size=64, loss=0.25)
        >>> round(float(found["steps"].right)), found.failing
        (559, ('steps',))

    Source: Li et al. (2025), Theorem 4.
    """
    if pattern_counts is not None:
        check_shape("pattern_counts", pattern_counts, ("K", "M"))
    check_shape("constants", constants, (3,))
    alpha = checked("relevant_fraction", tasks.relevant_fraction, positive)
    M, K = tasks.num_states, tasks.num_steps
    of_length, of_iterations, of_batch = jnp.asarray(constants)
    steps = alpha**-2 * K**3 + M * K * (1 / alpha + 1 / jnp.asarray(loss))
    balanced = "counts of patterns differ by <= tolerance"
    enough = "T >= C (K^3 / alpha^2 + M K (1 / alpha + 1 / eps))"
    per_batch = of_batch * jnp.asarray(loss) ** -2
    shortest = of_length / alpha
    return Conditions(
        (
            at_most("balance", balanced, _imbalance(pattern_counts), tolerance),
            at_least("training length", "l_tr >= C / alpha", num_examples, shortest),
            at_least("steps", enough, num_iterations, of_iterations * steps),
            at_least("batch", "B >= C eps^-2", batch_size, per_batch),
        )
    )


def _imbalance(counts):
    """Largest relative deviation of a count from the mean of its step."""
    if counts is None:
        return jnp.zeros(())
    counts = jnp.asarray(counts)
    mean = jnp.mean(counts, axis=1, keepdims=True)
    return jnp.max(jnp.abs(counts - mean) / mean)


@calculator(compiled=False, static=("form",))
def cot_conditions(
    task: ReasoningTask,
    num_examples: Number,
    *,
    form: ConditionForm = "published",
    training: Alphabet | None = None,
    tolerance: Number = 1e-6,
    least_part: Number = 0.5,
    constant: Number = 1.0,
) -> Conditions:
    r"""Conditions for chain of thought without error (Theorem 5).

    .. math:: l_{ts} \ge C (\alpha' \tau^f)^{-2} \;\text{(slides)}, \qquad
              l_{ts} \ge C (\alpha' \tau^f \rho^f)^{-2} \;\text{(published)} .

    They are ``patterns`` and ``test length``. The slides want each test pattern to be a
    linear combination of the training patterns, the published form a component in their
    span that is not small. Without rho no constant C serves all tasks.

    Args:
        training: Alphabet of training; the test patterns are in its span if ``None``.
        tolerance: Largest part outside the span, relative, for the form of the slides.
        least_part: Least part inside the span, for the published form.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> task = ReasoningTask(slide_transitions())
        >>> found = cot_conditions(task, 41, form="slides")
        >>> round(float(found["test length"].right), 1), bool(found.holds)
        (7.7, True)

    Source: Li et al. (2025), Theorem 5.
    """
    least = _least(task, form, task.tau, task.rho)
    outside = jnp.zeros(())
    if training is not None:
        outside = jnp.max(span_residual(task.alphabet.patterns, training.patterns))
    if form == "slides":
        fit = at_most("patterns", "part outside the span <= 0", outside, tolerance)
    else:
        inside = jnp.sqrt(jnp.maximum(1 - jnp.square(outside), 0))
        fit = at_least("patterns", "part in the span >= C", inside, least_part)
    return Conditions((fit, _test_length(form, "tau", num_examples, least, constant)))


@calculator(compiled=False, static=("form",))
def icl_conditions(
    task: ReasoningTask,
    num_examples: Number,
    *,
    form: ConditionForm = "published",
    constant: Number = 1.0,
) -> Conditions:
    r"""Conditions for plain in-context learning (Theorem 6).

    .. math:: l_{ts} \ge C (\alpha' \tau_o^f)^{-2} \;\text{(slides)}, \qquad
              l_{ts} \ge C (\alpha' \tau_o^f \rho_o^f)^{-2} \;\text{(published)} .

    They are ``condition 1``, with the share of inputs for which it holds, and ``test
    length``. Where the first fails, the error stays above 0 at any length (part 1).

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> found = icl_conditions(ReasoningTask(slide_transitions()), 321)
        >>> found.failing
        ('condition 1',)

    Source: Li et al. (2025), Theorem 6.
    """
    least = _least(task, form, task.tau_o, task.rho_o)
    right, says = task.condition_1, "the right answer is the likeliest"
    share = jnp.mean(right.astype(float))
    most = Condition("condition 1", says, share, 1.0, jnp.all(right))
    return Conditions(
        (most, _test_length(form, "tau_o", num_examples, least, constant))
    )


def _least(task, form, tau, rho):
    check_choice("form", form, FORMS)
    least = tau * task.relevant_fraction
    return least * rho if form == "published" else least


def _test_length(form, name, num_examples, least, constant):
    gap = " " + name.replace("tau", "rho") if form == "published" else ""
    inequality = f"l_ts >= C (alpha' {name}{gap})^-2"
    return at_least("test length", inequality, num_examples, constant * least**-2)
