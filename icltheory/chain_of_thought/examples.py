"""Transition matrices of tasks: those of the slides, and parametric families."""

import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int
from icltheory._core import calculator
from icltheory._typing import Array, Float


@calculator(compiled=False)
def slide_transitions() -> Float[Array, "2 2 2"]:
    """The two steps of the slides; Condition 1 fails for the first of two inputs.

    Example:
        >>> slide_transitions().shape
        (2, 2, 2)

    Source: Li et al. (2025), data modelling.
    """
    return jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])


@calculator(compiled=False, static=("probability",))
def faithful_transitions(probability: float | int = 0.8) -> Float[Array, "2 2 2"]:
    """Two steps over two states with equal error rates; Condition 1 holds.

    The first step keeps the state, the second one flips it; ``probability``, above
    1/2, is that of the right step.

    Example:
        >>> faithful_transitions(0.75)[1].tolist()
        [[0.25, 0.75], [0.75, 0.25]]

    Source: Li et al. (2025), Theorem 6.
    """
    if not 0.5 < probability <= 1:
        raise ValueError(
            f"probability: expected a value in (0.5, 1], got {probability}"
        )
    keep = np.array([[probability, 1 - probability], [1 - probability, probability]])
    return jnp.asarray(np.stack([keep, keep[:, ::-1]]))


@calculator(compiled=False)
def popular_answer_transitions() -> Float[Array, "2 6 6"]:
    """Two steps over six states; Condition 1 fails for every input.

    The first step is right with .30 and wrong with .14 for each other state. In the
    second one all states lead to state 0 with .35, and to the right answer with .55.

    Example:
        >>> popular_answer_transitions().shape
        (2, 6, 6)

    Source: Li et al. (2025), Condition 1.
    """
    first = np.full((6, 6), 0.14) + 0.16 * np.eye(6)
    second = np.full((6, 6), 0.025)
    second[:, 0] = 0.35
    second[np.arange(6), [1, 2, 3, 4, 5, 1]] = 0.55
    return jnp.asarray(np.stack([first, second]))


@calculator(compiled=False, static=("num_states", "num_steps", "tau", "rho"))
def contested_transitions(
    num_states: int, num_steps: int, tau: float | int, rho: float | int
) -> Float[Array, "K M M"]:
    r"""Steps with given tau and rho, where each state has one correct and one rival.

    .. math:: p_{(1)} = \tau^{1/K}, \qquad p_{(2)} = (1 - \rho) p_{(1)},

    and the rest is spread evenly over the other states. Step k leads from i to i + k,
    or to the rival i + k + 1, modulo the number of states. Feasible where

    .. math:: p_{(1)} + p_{(2)} \le 1 \le p_{(1)} + (M - 1) p_{(2)} .

    Example:
        >>> contested_transitions(2, 1, 0.75, 2 / 3)[0].round(4).tolist()
        [[0.25, 0.75], [0.75, 0.25]]

    Source: Li et al. (2025), Figures 17 and 18, whose rows are not published.
    """
    check_positive_int("num_steps", num_steps)
    check_positive_int("num_states", num_states)
    if num_states < 2 or not 0 < tau <= 1 or not 0 <= rho <= 1:
        raise ValueError(
            "num_states, tau, rho: expected at least 2, in (0, 1] and in [0, 1], got "
            f"{num_states}, {tau} and {rho}"
        )
    first = tau ** (1 / num_steps)
    second = (1 - rho) * first
    if first + second > 1 + 1e-6:  # the shares may be rounded to float32
        raise ValueError(
            f"rho: expected p1 + p2 <= 1 with p1 = tau^(1/K), p2 = (1 - rho) p1, "
            f"got {first:.3f} + {second:.3f}"
        )
    if first + (num_states - 1) * second < 1 - 1e-6:
        raise ValueError(
            f"rho: expected p1 + (M - 1) p2 >= 1, so that no third state is above the "
            f"rival, got {first:.3f} + {num_states - 1} * {second:.3f}"
        )
    rest = max(0.0, 1 - first - second) / max(num_states - 2, 1)
    states = np.arange(num_states)
    steps = np.full((num_steps, num_states, num_states), rest)
    for k in range(num_steps):
        steps[k, states, (states + k + 1) % num_states] = first
        steps[k, states, (states + k + 2) % num_states] = second
    return jnp.asarray(steps)
