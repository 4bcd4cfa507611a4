"""Demonstrations, validation and rest from labelled training rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from icltheory._named_errors import named_errors
from icltheory._public import shown
from icltheory.bridge.tasks.declare import Split
from icltheory.bridge.tasks.task import Example

__all__ = ["Draw", "draw", "shuffle_seed"]


class Draw(NamedTuple):
    """Training rows by what they are used for.

    Args:
        demonstrations: Those that reach the prompt, in its order.
        validation: Class by class; empty if validation has a file of its own.
        rest: What neither took, class by class.

    References:
        Yao et al. (2024), section C.3. Verified by ``tests/bridge/test_tasks.py``.
    """

    demonstrations: tuple[Example, ...]
    validation: tuple[Example, ...]
    rest: tuple[Example, ...]


@named_errors
def shuffle_seed(split: Split, seed: int) -> int | list[int]:
    """Seed of the shuffle: the published one for 0, else another stream of its own.

    Args:
        split: The split, which knows the published seed.
        seed: Number of the draw.

    Returns:
        What ``numpy.random.default_rng`` takes.

    Example:
        >>> shuffle_seed(Split(seed=66), 0), shuffle_seed(Split(seed=66), 1)
        (66, [66, 1])

    References:
        Verified by ``tests/bridge/test_tasks.py``.
    """
    return split.seed if seed == 0 else [split.seed, seed]


@named_errors
def draw(
    name: str,
    examples: Sequence[Example],
    split: Split,
    words: Sequence[str],
    seed: int = 0,
) -> Draw:
    """Splits training rows as declared.

    The shuffle is ``numpy.random.default_rng(seed).permutation(n)``, which is also what
    ``Dataset.shuffle`` of Hugging Face does.

    Args:
        name: Name of the task, for messages.
        examples: The training rows in file order.
        split: The rule.
        words: Names of the classes, for messages.
        seed: 0 for the published draw, another number for another draw.

    Returns:
        Demonstrations, validation and rest.

    Raises:
        ValueError: If a class has too few rows.

    References:
        Yao et al. (2024), section C.3. Verified by ``tests/bridge/test_tasks.py``.
    """
    order = split.order or tuple(range(len(words)))
    by_class: dict[int, list[Example]] = {label: [] for label in order}
    rng = np.random.default_rng(shuffle_seed(split, seed))
    for position in rng.permutation(len(examples)):
        example = examples[int(position)]
        by_class[example.label].append(example)
    taken = split.validation if isinstance(split.validation, int) else None
    first, last = split.skip, split.skip + split.per_class
    for label, rows in by_class.items():
        needed = max(last, split.per_class + (taken or 0))
        if len(rows) < needed:
            raise ValueError(
                f"{name}: expected at least {needed} training rows of class "
                f"{words[label]!r}, got {len(rows)}"
            )
    turns = zip(*(rows[first:last] for rows in by_class.values()), strict=True)
    demonstrations = tuple(example for turn in turns for example in turn)
    left = [rows[:first] + rows[last:] for rows in by_class.values()]
    if split.validation == "validation":
        taken = 0
    return Draw(
        demonstrations[: split.keep],
        tuple(example for rows in left for example in rows[:taken]),
        () if taken is None else tuple(e for rows in left for e in rows[taken:]),
    )


__dir__ = shown(__name__)
