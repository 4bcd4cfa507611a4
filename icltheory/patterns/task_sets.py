"""Sets of classification tasks, which are ordered pairs of relevant patterns."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from icltheory._checks import check_integer

__all__ = [
    "all_tasks",
    "circulant_tasks",
    "covers",
    "held_out_tasks",
    "read_tasks",
    "task_ratio",
]

Tasks = tuple[tuple[int, int], ...]


def all_tasks(num_relevant: int) -> Tasks:
    """All M1 (M1 - 1) tasks: +1 on one relevant pattern, -1 on another.

    Args:
        num_relevant: Number M1 of relevant patterns, at least 2.

    Returns:
        The ordered pairs (a, b).

    Example:
        >>> all_tasks(3)
        ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))

    Source: Li et al. (2024), data and tasks.
    """
    check_integer("num_relevant", num_relevant, 2)
    every = range(num_relevant)
    return tuple((a, b) for a in every for b in every if a != b)


def circulant_tasks(num_relevant: int, shifts: Sequence[int]) -> Tasks:
    r"""Tasks that cover every pattern and label equally often.

    .. math:: \{ (i,\, i + s \bmod M_1) : 0 \le i < M_1,\ s \in \text{shifts} \} .

    One shift is a ring of M1 tasks. That is a share 1 / (M1 - 1) of all tasks, below
    the (M1 - 1)^{-1/2} of Theorem 1: enough for unseen tasks, not for shifted patterns.

    Args:
        num_relevant: Number M1 of relevant patterns.
        shifts: Distinct numbers s, from 1 to M1 - 1.

    Returns:
        The ordered pairs (a, b), M1 for each shift.

    Example:
        >>> circulant_tasks(4, [1])
        ((0, 1), (1, 2), (2, 3), (3, 0))
        >>> covers(circulant_tasks(6, [1, 2, 3]), 6)
        True

    Source: Li et al. (2024), Theorem 1.
    """
    check_integer("num_relevant", num_relevant, 2)
    known = sorted(set(shifts))
    if (
        not known
        or len(known) < len(shifts)
        or not 1 <= known[0] <= known[-1] < (num_relevant)
    ):
        raise ValueError(
            f"shifts: expected distinct numbers from 1 to {num_relevant - 1}, "
            f"got {list(shifts)}"
        )
    every = range(num_relevant)
    return tuple((i, (i + s) % num_relevant) for s in shifts for i in every)


def held_out_tasks(num_relevant: int, tasks: Any) -> Tasks:
    r"""Tasks that were not trained on, :math:`T \setminus T_{tr}`.

    Args:
        num_relevant: Number M1 of relevant patterns.
        tasks: Ordered pairs (a, b) trained on.

    Returns:
        All other ordered pairs.

    Example:
        >>> held_out_tasks(3, circulant_tasks(3, [1]))
        ((0, 2), (1, 0), (2, 1))

    Source: Li et al. (2024), equation (9).
    """
    seen = set(read_tasks(num_relevant, tasks))
    left = tuple(task for task in all_tasks(num_relevant) if task not in seen)
    if not left:
        raise ValueError(
            f"tasks: expected fewer than all {len(seen)} tasks, so that some are "
            f"unseen, got {len(seen)}"
        )
    return left


def covers(tasks: Any, num_relevant: int) -> bool:
    """Whether all patterns are +1 and -1 equally often.

    The condition of Theorem 1 that the training tasks cover all relevant patterns and
    labels uniformly.

    Args:
        tasks: Ordered pairs (a, b): +1 on a, -1 on b.
        num_relevant: Number M1 of relevant patterns.

    Returns:
        The answer.

    Example:
        >>> covers([(0, 1), (1, 0)], 2), covers([(0, 1), (1, 2), (0, 2)], 3)
        (True, False)

    Source: Li et al. (2024), Theorem 1.
    """
    counts = Counter()
    for a, b in read_tasks(num_relevant, tasks):
        counts.update([(a, 1), (b, -1)])
    return len(counts) == 2 * num_relevant and len(set(counts.values())) == 1


def task_ratio(tasks: Any, num_relevant: int) -> float:
    r"""Share of tasks trained on, :math:`|T_{tr}| / |T|`.

    Args:
        tasks: Ordered pairs (a, b); one that is given twice counts once.
        num_relevant: Number M1 of relevant patterns.

    Returns:
        The share, :math:`|T| = M_1 (M_1 - 1)`.

    Example:
        >>> task_ratio(circulant_tasks(6, [1, 2, 3]), 6)
        0.6

    Source: Li et al. (2024), Theorem 1.
    """
    distinct = set(read_tasks(num_relevant, tasks))
    return len(distinct) / (num_relevant * (num_relevant - 1))


def read_tasks(num_relevant: int, tasks: Any) -> Tasks:
    """Converts tasks to a checked tuple of pairs of integers.

    Args:
        num_relevant: Number M1 of relevant patterns.
        tasks: Ordered pairs (a, b), in any form that NumPy reads.

    Returns:
        The same pairs.

    Example:
        >>> read_tasks(3, [[0, 2]])
        ((0, 2),)
    """
    check_integer("num_relevant", num_relevant, 2)
    known = np.asarray(tasks)
    ok = known.ndim == 2 and known.shape[1:] == (2,) and known.shape[0] > 0
    if not ok or not np.issubdtype(known.dtype, np.integer):
        raise ValueError(f"tasks: expected pairs of integers, got {tasks!r}")
    for a, b in known.tolist():
        if a == b or not (0 <= a < num_relevant and 0 <= b < num_relevant):
            raise ValueError(
                f"tasks: expected two different patterns from 0 to "
                f"{num_relevant - 1}, got ({a}, {b})"
            )
    return tuple((a, b) for a, b in known.tolist())
