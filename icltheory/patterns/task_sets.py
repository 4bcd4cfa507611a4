"""Sets of tasks: the ordered pairs (a, b), +1 on pattern a and -1 on pattern b."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from icltheory._checks import check_integer

Tasks = tuple[tuple[int, int], ...]


def all_tasks(num_relevant: int) -> Tasks:
    """All M1 (M1 - 1) tasks of M1 relevant patterns.

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

    The shifts are distinct, from 1 to M1 - 1. One of them is a ring of M1 tasks, below
    the share of Theorem 1: enough for unseen tasks, not for shifted patterns.

    Example:
        >>> circulant_tasks(4, [1])
        ((0, 1), (1, 2), (2, 3), (3, 0))
        >>> covers(circulant_tasks(6, [1, 2, 3]), 6)
        True

    Source: Li et al. (2024), Theorem 1.
    """
    check_integer("num_relevant", num_relevant, 2)
    known, most = sorted(set(shifts)), num_relevant - 1
    distinct = 0 < len(known) == len(shifts)
    if not distinct or not 1 <= known[0] <= known[-1] <= most:
        expected = f"distinct numbers from 1 to {most}"
        raise ValueError(f"shifts: expected {expected}, got {list(shifts)}")
    every = range(num_relevant)
    return tuple((i, (i + s) % num_relevant) for s in shifts for i in every)


def held_out_tasks(tasks: Any, num_relevant: int) -> Tasks:
    r"""Tasks that were not trained on, :math:`T \setminus T_{tr}`.

    Example:
        >>> held_out_tasks(circulant_tasks(3, [1]), 3)
        ((0, 2), (1, 0), (2, 1))

    Source: Li et al. (2024), equation (9).
    """
    seen = set(read_tasks(tasks, num_relevant))
    left = tuple(task for task in all_tasks(num_relevant) if task not in seen)
    if not left:
        expected = f"fewer than all {len(seen)} tasks, so that some are unseen"
        raise ValueError(f"tasks: expected {expected}, got {len(seen)}")
    return left


def covers(tasks: Any, num_relevant: int) -> bool:
    """Whether all patterns are +1 and -1 equally often, as Theorem 1 demands.

    Example:
        >>> covers([(0, 1), (1, 0)], 2), covers([(0, 1), (1, 2), (0, 2)], 3)
        (True, False)

    Source: Li et al. (2024), Theorem 1.
    """
    counts = Counter()
    for a, b in read_tasks(tasks, num_relevant):
        counts.update([(a, 1), (b, -1)])
    return len(counts) == 2 * num_relevant and len(set(counts.values())) == 1


def task_ratio(tasks: Any, num_relevant: int) -> float:
    r"""Share of tasks trained on, :math:`|T_{tr}| / |T|` with |T| = M1 (M1 - 1).

    Example:
        >>> task_ratio(circulant_tasks(6, [1, 2, 3]), 6)
        0.6

    Source: Li et al. (2024), Theorem 1.
    """
    distinct = set(read_tasks(tasks, num_relevant))
    return len(distinct) / (num_relevant * (num_relevant - 1))


def read_tasks(tasks: Any, num_relevant: int) -> Tasks:
    """Converts pairs, in any form that NumPy reads, to checked tuples of integers."""
    check_integer("num_relevant", num_relevant, 2)
    known = np.asarray(tasks)
    pairs = known.ndim == 2 and known.shape[1:] == (2,) and known.shape[0] > 0
    if not pairs or not np.issubdtype(known.dtype, np.integer):
        raise ValueError(f"tasks: expected pairs of integers, got {tasks!r}")
    for a, b in known.tolist():
        if a == b or not (0 <= a < num_relevant and 0 <= b < num_relevant):
            expected = f"two different patterns from 0 to {num_relevant - 1}"
            raise ValueError(f"tasks: expected {expected}, got ({a}, {b})")
    return tuple((a, b) for a, b in known.tolist())
