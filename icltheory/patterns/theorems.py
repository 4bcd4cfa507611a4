"""Theorems 1 to 3 of Li et al. (2024): closed forms, and conditions with constants."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    check_positive_int,
    checked,
    nonnegative,
    positive,
    unit,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float
from icltheory.patterns.conditions import Condition, Conditions, at_least, at_most
from icltheory.patterns.shift import is_feasible
from icltheory.patterns.task import PatternTask
from icltheory.patterns.task_sets import covers, task_ratio

Numbers = Real[ArrayLike, "*_B"]


@calculator(gain=nonnegative, ratio=nonnegative)
def margin(
    coefficient_sum: Numbers, gain: Numbers, ratio: Numbers
) -> Float[Array, "*B"]:
    r"""Margin of a network of lucky neurons at coefficient sum S_1 (Theorem 2).

    .. math:: F(S_1) = g \bigl[ (1 + c S_1)_+ - (c S_1 - 1)_+ \bigr] .

    A lucky neuron is proportional to :math:`c \hat\mu + q` if its weight a is positive,
    and to :math:`c \hat\mu - q` if it is negative; attention is on the query's pattern.
    Gain g and ratio c are those of :func:`gain_ratio`. Derived here, not a formula of
    the paper.

    Example:
        >>> S = jnp.array([4.0, 1.0, 0.0, -2.0])
        >>> margin(S, 0.5, 0.5).tolist()
        [1.0, 0.75, 0.5, 0.0]

    Source: Li et al. (2024), Theorem 2 and Proposition 2.
    """
    cS = ratio * jnp.asarray(coefficient_sum)
    return jnp.asarray(gain) * (_positive(1 + cS) - _positive(cS - 1))


@calculator
def hinge(margins: Numbers) -> Float[Array, "*B"]:
    r"""Hinge loss of margins z F, :math:`[1 - z F]_+`.

    Example:
        >>> hinge(jnp.array([0.25, 2.0])).tolist()
        [0.75, 0.0]

    Source: Li et al. (2024), equation (8).
    """
    return _positive(1 - jnp.asarray(margins))


@calculator(pruned_fraction=unit)
def pruned_hinge(margins: Numbers, pruned_fraction: Numbers) -> Float[Array, "*B"]:
    r"""Hinge error after a share g of the large neurons is pruned (Theorem 3).

    .. math:: \bigl[ 1 - F (1 - g) \bigr]_+ ,

    with the margin F before pruning: the mean over random choices of neurons. Derived
    here, not a formula of the paper.

    Example:
        >>> pruned_hinge(1.25, jnp.array([0.0, 0.2, 0.6])).round(6).tolist()
        [0.0, 0.0, 0.5]

    Source: Li et al. (2024), Theorem 3.
    """
    return _positive(1 - jnp.asarray(margins) * (1 - pruned_fraction))


@calculator(
    integers=("num_examples",), relevant_fraction=unit, num_examples=nonnegative
)
def miss_probability(
    relevant_fraction: Numbers, num_examples: Numbers
) -> Float[Array, "*B"]:
    r"""Chance that no context shares the query's pattern, for alpha' and l contexts.

    .. math:: \Bigl( 1 - \frac{\alpha'}{2} \Bigr)^l .

    Example:
        >>> miss_probability(0.8, jnp.array([0, 1, 8])).round(6).tolist()
        [1.0, 0.6, 0.016796]

    Source: Li et al. (2024), Theorem 1, condition (2).
    """
    return (1 - jnp.asarray(relevant_fraction) / 2) ** jnp.asarray(num_examples)


def _positive(value):
    return jnp.maximum(value, 0)


class Setting(Record):
    """Sizes of a training and of its test; alpha is that of the task."""

    num_steps: int  # T
    batch_size: int = 128  # B
    num_examples: int = 20  # l_tr of a training prompt
    test_examples: int = 20  # l_ts of a test prompt
    test_fraction: float = 0.8  # alpha' of a test prompt

    def __post_init__(self):
        for name in ("num_steps", "batch_size", "num_examples", "test_examples"):
            check_positive_int(name, getattr(self, name))
        self.test_fraction = checked("test_fraction", self.test_fraction, unit)


class Constants(Record):
    """Constants that the paper's orders of magnitude hide; the comments say where.

    Those of T depend on the step size: at the settings of this package the hinge error
    falls below .1 near T = 130 alpha^{-2/3}.
    """

    length: float = 1.0  # l_tr alpha >= C
    test_length: float = 1.0  # l_ts alpha' >= C'
    batch: float = 1.0  # B >= C_B max(eps^-2, M1)
    steps: tuple[float, float] = (100.0, 1000.0)  # C_1 <= T alpha^(2/3) <= C_2
    least_sum: float = 1.0  # S_1 >= 1
    largest_sum: float = 2.0  # "a constant order" of S_1
    small: float = 1.0  # error <= C (eps + M2^(-1/2))
    large: float = 1.0  # error >= c R


@calculator(compiled=False, accuracy=positive)
def in_domain_conditions(
    task: PatternTask,
    setting: Setting,
    accuracy: float,
    *,
    constants: Constants = Constants(),  # noqa: B008
) -> Conditions:
    r"""Conditions for in-domain generalisation (Li et al. 2024, Theorem 1).

    .. math::
        \frac{|T_{tr}|}{|T|} \ge (M_1 - 1)^{-1/2} , \quad
        l_{tr}\, \alpha \ge C , \quad l_{ts}\, \alpha' \ge C' , \quad
        B \ge C_B \max\{\epsilon^{-2}, M_1\} , \quad
        C_1 \le T \alpha^{2/3} \le C_2 ,

    and a uniform cover of patterns and labels. The task has the training tasks and
    alpha, and ``accuracy`` is epsilon. Of ``steps`` the right side is C_1, or C_2 where
    that is exceeded.

    Example:
        >>> ring = [(i, (i + 1) % 6) for i in range(6)]
        >>> task = PatternTask(6, 24, 2.0, tasks=ring)
        >>> found = in_domain_conditions(task, Setting(num_steps=320), 0.1)
        >>> found.failing
        ('tasks',)
        >>> print(found["tasks"])
        tasks: |T_tr|/|T| >= (M1 - 1)^(-1/2) (0.2 against 0.447214): fails

    Source: Li et al. (2024), Theorem 1.
    """
    test = _test_length(setting, constants)
    cover, tasks, training, *rest = _training(task, setting, accuracy, constants)
    return Conditions((cover, tasks, training, test, *rest))


@calculator(compiled=False, accuracy=positive)
def out_of_domain_conditions(
    task: PatternTask,
    setting: Setting,
    accuracy: float,
    coefficient_sum: float,
    *,
    constants: Constants = Constants(),  # noqa: B008
) -> Conditions:
    r"""Conditions for out-of-domain generalisation (Li et al. 2024, Theorem 2).

    .. math:: 1 \le S_1 \le C , \qquad M_1' S_1^2 \le M_1 , \qquad
        l_{ts}\, \alpha' \ge C' ,

    beside the conditions of Theorem 1 on training. The second is not in the paper:
    without it there are no such patterns.

    Example:
        >>> task = PatternTask(6, 24, 2.0, num_shifted=4)
        >>> out_of_domain_conditions(task, Setting(num_steps=320), 0.1, 1.3).failing
        ('feasible',)

    Source: Li et al. (2024), Theorem 2.
    """
    S, M, num = coefficient_sum, task.num_relevant, task.num_shifted
    exist = bool(is_feasible(M, num, S))
    return Conditions(
        (
            *_training(task, setting, accuracy, constants),
            at_least("coefficient sum", "S_1 >= 1", S, constants.least_sum),
            at_most("constant order", "S_1 <= C", S, constants.largest_sum),
            Condition("feasible", "M1' S_1^2 <= M1", num * S**2, M, exist),
            _test_length(setting, constants),
        )
    )


@calculator(compiled=False)
def pruning_conditions(
    task: PatternTask,
    accuracy: float,
    small_error: float,
    large_error: float,
    pruned_fraction: float,
    *,
    constants: Constants = Constants(),  # noqa: B008
) -> Conditions:
    r"""Bounds on the error after pruning (Li et al. 2024, Theorem 3).

    .. math:: \text{small neurons gone: } \le C (\epsilon + M_2^{-1/2}) , \qquad
        \text{a share } R \text{ of the large ones gone: } \ge c R ,

    with M2 irrelevant patterns. The second is conditional: a margin F > 1 has slack,
    and by :func:`pruned_hinge` a share below 1 - 1/F need not cost anything. Errors are
    hinge errors, and ``accuracy`` is epsilon, that before pruning.

    Example:
        >>> pruning_conditions(PatternTask(6, 24, 2.0), 1e-4, 1e-4, 0.46, 0.4).holds
        True

    Source: Li et al. (2024), Theorem 3.
    """
    bound = constants.small * (accuracy + task.num_irrelevant**-0.5)
    least = constants.large * pruned_fraction
    return Conditions(
        (
            at_most(
                "small neurons", "error <= C (eps + M2^(-1/2))", small_error, bound
            ),
            at_least("large neurons", "error >= c R", large_error, least),
        )
    )


def _training(task, setting, accuracy, constants) -> tuple[Condition, ...]:
    """The conditions of Theorem 1 but that on the test."""
    M, covered = task.num_relevant, covers(task.tasks, task.num_relevant)
    alpha = float(task.relevant_fraction)
    ratio, length = task_ratio(task.tasks, M), setting.num_examples * alpha
    size = constants.batch * max(accuracy**-2, M)
    scaled, (low, high) = setting.num_steps * alpha ** (2 / 3), constants.steps
    end, inside = high if scaled > high else low, low <= scaled <= high
    return (
        Condition("cover", "T_tr covers uniformly", int(covered), 1, covered),
        at_least("tasks", "|T_tr|/|T| >= (M1 - 1)^(-1/2)", ratio, (M - 1) ** -0.5),
        at_least("training length", "l_tr alpha >= C", length, constants.length),
        at_least("batch", "B >= C max(eps^-2, M1)", setting.batch_size, size),
        Condition("steps", "C1 <= T alpha^(2/3) <= C2", scaled, end, inside),
    )


def _test_length(setting: Setting, constants: Constants) -> Any:
    length, least = setting.test_examples * setting.test_fraction, constants.test_length
    return at_least("test length", "l_ts alpha' >= C'", length, least)
