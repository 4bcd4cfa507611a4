"""Splits labelled training rows into demonstrations, validation and rest."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from icltheory.bridge.tasks.declare import Split
from icltheory.bridge.tasks.task import Example

__all__ = ["Draw", "draw", "shuffle_seed"]


class Draw(NamedTuple):
    """Training rows, divided by their use.

    Args:
        demonstrations: Those that reach the prompt, in its order.
        validation: Class by class; empty if validation has a file of its own.
        rest: What neither took, class by class.

    Source: Yao et al. (2024), section C.3.
    """

    demonstrations: tuple[Example, ...]
    validation: tuple[Example, ...]
    rest: tuple[Example, ...]


def shuffle_seed(split: Split, seed: int) -> int | list[int]:
    """Seed of the shuffle: the published one for 0, else an independent one.

    Args:
        split: The split, which knows the published seed.
        seed: Number of the shuffle.

    Returns:
        What ``numpy.random.default_rng`` takes.

    Example:
        >>> shuffle_seed(Split(seed=66), 0), shuffle_seed(Split(seed=66), 1)
        (66, [66, 1])
    """
    return split.seed if seed == 0 else [split.seed, seed]


def draw(
    name: str,
    examples: Sequence[Example],
    split: Split,
    words: Sequence[str],
    question_seed: int = 0,
    demonstration_seed: int = 0,
    reserved: int = 0,
) -> Draw:
    """Splits training rows as a declaration says.

    The shuffle is ``numpy.random.default_rng(seed).permutation(n)``, which is also what
    ``Dataset.shuffle`` of Hugging Face does. The questions, validation and rest, depend
    on ``question_seed`` and ``reserved`` alone. Another draw of the demonstrations
    shuffles all rows once more and takes the first of each class that are no question.

    Args:
        name: Name of the task, for messages.
        examples: The training rows in file order.
        split: The rule.
        words: Names of the classes, for messages.
        question_seed: 0 for the published shuffle, another number for another.
        demonstration_seed: 0 for the demonstrations of that shuffle, another number for
            others behind the same questions.
        reserved: Rows of each class, the last of the shuffle, that are no questions and
            may become demonstrations, where all that is left would be asked.

    Returns:
        Demonstrations, validation and rest.

    Source: Yao et al. (2024), section C.3.
    """
    by_class = _shuffled(examples, split, words, question_seed)
    asked_all = "rest" in (split.validation, split.test)
    taken = split.validation if isinstance(split.validation, int) else 0
    kept = reserved if asked_all or taken else 0
    first, last = split.skip, split.skip + split.per_class
    for label, rows in by_class.items():
        needed = max(last, split.per_class + taken) + kept
        if len(rows) < needed:
            raise ValueError(
                f"{name}: expected at least {needed} training rows of class "
                f"{words[label]!r}, got {len(rows)}"
            )
    shown = {label: rows[first:last] for label, rows in by_class.items()}
    left = [rows[:first] + rows[last : len(rows) - kept] for rows in by_class.values()]
    if split.validation == "rest":
        validation, rest = left, [[] for _ in left]
    else:
        validation, rest = [r[:taken] for r in left], [r[taken:] for r in left]
    if demonstration_seed and split.per_class:
        parts = (*validation, *rest) if asked_all else validation
        asked = {example.index for rows in parts for example in rows}
        others = _shuffled(examples, split, words, demonstration_seed)
        shown = _others(name, others, asked, split.per_class)
    turns = zip(*shown.values(), strict=True)
    demonstrations = tuple(example for turn in turns for example in turn)
    return Draw(
        demonstrations[: split.keep],
        tuple(example for rows in validation for example in rows),
        tuple(example for rows in rest for example in rows),
    )


def _shuffled(
    examples: Sequence[Example], split: Split, words: Sequence[str], seed: int
) -> dict[int, list[Example]]:
    """Returns the shuffled rows of each class."""
    order = split.order or tuple(range(len(words)))
    by_class: dict[int, list[Example]] = {label: [] for label in order}
    rng = np.random.default_rng(shuffle_seed(split, seed))
    for position in rng.permutation(len(examples)):
        example = examples[int(position)]
        by_class[example.label].append(example)
    return by_class


def _others(
    name: str, by_class: dict[int, list[Example]], asked: set[int], per_class: int
) -> dict[int, list[Example]]:
    """Returns the first rows of each class that are not used as questions."""
    free = {
        label: [example for example in rows if example.index not in asked]
        for label, rows in by_class.items()
    }
    fewest = min(len(rows) for rows in free.values())
    if fewest <= per_class:
        raise ValueError(
            f"demonstration_seed: expected more than {per_class} training rows of each "
            f"class of {name} that are not used as questions, got {fewest}; set "
            "reserved= to keep some for other demonstrations"
        )
    return {label: rows[:per_class] for label, rows in free.items()}
