"""Conditions and bounds of Theorems 1 to 3 with explicit constants."""

from typing import Any

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int
from icltheory._conditions import Condition, Conditions, at_least, at_most
from icltheory._noted import check_positive
from icltheory.patterns.shift import is_feasible
from icltheory.patterns.task_sets import covers, task_ratio

__all__ = [
    "Condition",
    "Conditions",
    "in_domain_conditions",
    "out_of_domain_conditions",
    "pruning_conditions",
]


@calculator(compiled=False)
def in_domain_conditions(
    tasks: Any,
    num_relevant: int,
    *,
    relevant_fraction: float,
    num_examples: int,
    test_fraction: float,
    test_examples: int,
    batch_size: int,
    num_steps: int,
    accuracy: float,
    length_constant: float = 1.0,
    test_length_constant: float = 1.0,
    batch_constant: float = 1.0,
    steps_constants: tuple[float, float] = (100.0, 1000.0),
) -> Conditions:
    r"""Conditions for in-domain generalisation (Li et al. 2024, Theorem 1).

    .. math::
        \frac{|T_{tr}|}{|T|} \ge (M_1 - 1)^{-1/2} , \quad
        l_{tr}\, \alpha \ge C , \quad l_{ts}\, \alpha' \ge C' , \quad
        B \ge C_B \max\{\epsilon^{-2}, M_1\} , \quad
        C_1 \le T \alpha^{2/3} \le C_2 ,

    and a uniform cover of patterns and labels. The constants are hidden in the paper's
    orders of magnitude. Those of T depend on the step size: at the settings of this
    package the hinge error falls below .1 near T = 130 alpha^{-2/3}.

    One talk by the authors asks for ``|T_tr| >= M1`` and says that this means the first
    inequality; but M1 of M1 (M1 - 1) tasks are a share (M1 - 1)^{-1} only.

    Args:
        tasks: Training tasks, ordered pairs (a, b).
        num_relevant: Number M1 of relevant patterns.
        relevant_fraction: alpha of training prompts.
        num_examples: Contexts l_tr of training prompts.
        test_fraction: alpha' of test prompts.
        test_examples: Contexts l_ts of test prompts.
        batch_size: B.
        num_steps: T.
        accuracy: epsilon > 0.
        length_constant: C.
        test_length_constant: C'.
        batch_constant: C_B.
        steps_constants: (C_1, C_2).

    Returns:
        The conditions ``cover``, ``tasks``, ``training length``, ``test length``,
        ``batch`` and ``steps`` (its right side is C_1, or C_2 where that is exceeded).

    Example:
        >>> ring = [(i, (i + 1) % 6) for i in range(6)]
        >>> found = in_domain_conditions(
        ...     ring, 6, relevant_fraction=0.8, num_examples=20,
        ...     test_fraction=0.8, test_examples=20, batch_size=128, num_steps=320,
        ...     accuracy=0.1)
        >>> found.failing
        ('tasks',)
        >>> print(found["tasks"])
        tasks: |T_tr|/|T| >= (M1 - 1)^(-1/2) (0.2 against 0.447214): fails

    Source: Li et al. (2024), Theorem 1.
    """
    check_positive("accuracy", accuracy)
    check_positive("relevant_fraction", relevant_fraction)
    M1, covered = num_relevant, covers(tasks, num_relevant)
    scaled = num_steps * relevant_fraction ** (2 / 3)
    low, high = steps_constants
    end = high if scaled > high else low
    return Conditions(
        (
            Condition("cover", "T_tr covers uniformly", int(covered), 1, covered),
            at_least(
                "tasks",
                "|T_tr|/|T| >= (M1 - 1)^(-1/2)",
                task_ratio(tasks, M1),
                (M1 - 1) ** -0.5,
            ),
            at_least(
                "training length",
                "l_tr alpha >= C",
                num_examples * relevant_fraction,
                length_constant,
            ),
            _test_length(test_examples, test_fraction, test_length_constant),
            at_least(
                "batch",
                "B >= C max(eps^-2, M1)",
                batch_size,
                batch_constant * max(accuracy**-2, M1),
            ),
            Condition(
                "steps", "C1 <= T alpha^(2/3) <= C2", scaled, end, low <= scaled <= high
            ),
        )
    )


@calculator(compiled=False)
def out_of_domain_conditions(
    training: Conditions,
    num_relevant: int,
    num_shifted: int,
    coefficient_sum: float,
    *,
    test_fraction: float,
    test_examples: int,
    least_sum: float = 1.0,
    largest_sum: float = 2.0,
    test_length_constant: float = 1.0,
) -> Conditions:
    r"""Conditions for out-of-domain generalisation (Li et al. 2024, Theorem 2).

    .. math:: 1 \le S_1 \le C , \qquad M_1' S_1^2 \le M_1 , \qquad
        l_{ts}\, \alpha' \ge C' ,

    beside the conditions of Theorem 1. The second is not in the paper: without it there
    are no such patterns. A poster of the authors has S_1 no larger than 1 instead of no
    smaller, which is a slip.

    Args:
        training: What :func:`in_domain_conditions` found; its test length is left out.
        num_relevant: Number M1 of relevant patterns.
        num_shifted: Number M1' of out-of-domain patterns.
        coefficient_sum: :math:`S_1`.
        test_fraction: alpha' of test prompts.
        test_examples: Contexts l_ts of test prompts.
        least_sum: The 1 in S_1 >= 1.
        largest_sum: C, what "a constant order" allows.
        test_length_constant: C'.

    Returns:
        Those of Theorem 1, and ``coefficient sum``, ``constant order``, ``feasible``
        and ``test length``.

    Example:
        >>> found = out_of_domain_conditions(
        ...     Conditions(()), 6, 4, 1.3, test_fraction=0.8, test_examples=20)
        >>> found.failing
        ('feasible',)

    Source: Li et al. (2024), Theorem 2.
    """
    check_positive_int("num_shifted", num_shifted)
    S = coefficient_sum
    exist = bool(is_feasible(num_relevant, num_shifted, S))
    kept = tuple(one for one in training.each if one.name != "test length")
    return Conditions(
        (
            *kept,
            at_least("coefficient sum", "S_1 >= 1", S, least_sum),
            at_most("constant order", "S_1 <= C", S, largest_sum),
            Condition(
                "feasible",
                "M1' S_1^2 <= M1",
                num_shifted * S**2,
                num_relevant,
                exist,
            ),
            _test_length(test_examples, test_fraction, test_length_constant),
        )
    )


@calculator(compiled=False)
def pruning_conditions(
    small_error: float,
    large_error: float,
    pruned_fraction: float,
    num_irrelevant: int,
    accuracy: float,
    *,
    small_constant: float = 1.0,
    large_constant: float = 1.0,
) -> Conditions:
    r"""Bounds on the error after pruning (Li et al. 2024, Theorem 3).

    .. math:: \text{small neurons gone: } \le C (\epsilon + M_2^{-1/2}) , \qquad
        \text{a share } R \text{ of the large ones gone: } \ge c R .

    The first has M2 as in the later talks of the authors; an earlier one has M1. The
    second is conditional: a margin F > 1 has slack, and by :func:`pruned_hinge` a share
    below 1 - 1/F need not cost anything.

    Args:
        small_error: Hinge error with all small neurons pruned.
        large_error: Hinge error with a share of the large ones pruned.
        pruned_fraction: R, that share.
        num_irrelevant: Number M2 of irrelevant patterns.
        accuracy: epsilon, the error before pruning.
        small_constant: C.
        large_constant: c.

    Returns:
        The conditions ``small neurons`` and ``large neurons``.

    Example:
        >>> pruning_conditions(1e-4, 0.46, 0.4, 24, 1e-4).holds
        True

    Source: Li et al. (2024), Theorem 3.
    """
    check_positive_int("num_irrelevant", num_irrelevant)
    bound = small_constant * (accuracy + num_irrelevant**-0.5)
    return Conditions(
        (
            at_most(
                "small neurons", "error <= C (eps + M2^(-1/2))", small_error, bound
            ),
            at_least(
                "large neurons",
                "error >= c R",
                large_error,
                large_constant * pruned_fraction,
            ),
        )
    )


def _test_length(num_examples, fraction, constant):
    return at_least(
        "test length", "l_ts alpha' >= C'", num_examples * fraction, constant
    )
