"""Free-text answers: greedy generation, exact match and token F1."""

import dataclasses
import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from icltheory import statistics
from icltheory._checks import check_open_unit, check_positive_int
from icltheory.batching import Counter as Count
from icltheory.batching import Progress
from icltheory.bridge.evaluation.batches import rounded_up, row_lengths
from icltheory.bridge.evaluation.generation import (
    begun,
    checked_prompts,
    prefix_cache,
    written_texts,
)
from icltheory.bridge.tasks import LanguageTask

__all__ = [
    "GenerationEvaluation",
    "evaluate_generation",
    "exact_match",
    "normalise_answer",
    "token_f1",
]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NOTHING = statistics.Interval(math.nan, math.nan)


def normalise_answer(text: str) -> str:
    """Normalises an answer as SQuAD does for comparison.

    Small letters; without the punctuation of ASCII, without the words a, an and the,
    and with single spaces.

    Args:
        text: The answer.

    Returns:
        The normalised answer.

    Example:
        >>> normalise_answer("The  Eiffel-Tower, (an icon)!")
        'eiffeltower icon'

    Source: Rajpurkar et al. (2016), "SQuAD".
    """
    plain = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(text: str, answers: Sequence[str]) -> bool:
    """Whether a text equals one of the answers after normalisation.

    Args:
        text: What the model wrote.
        answers: The answers that count as right.

    Returns:
        Whether it is.

    Example:
        >>> exact_match(" the Seine.", ["Seine", "River Seine"])
        True

    Source: Rajpurkar et al. (2016).
    """
    _check_answers(answers)
    return normalise_answer(text) in {normalise_answer(a) for a in answers}


def token_f1(text: str, answers: Sequence[str]) -> float:
    r"""F1 score of words, for the answer with the largest overlap.

    .. math:: F_1 = \max_a \frac{2 P_a R_a}{P_a + R_a} = \max_a
        \frac{2\, |w \cap w_a|}{|w| + |w_a|}

    with the multisets w and :math:`w_a` of words of the normalised text and answer.
    Where one of them has no words, it is 1 if both have none, else 0.

    Args:
        text: What the model wrote.
        answers: The answers that count as right.

    Returns:
        The F1, in [0, 1].

    Example:
        >>> token_f1("the river Seine in Paris", ["River Seine", "Rhine"])
        0.6666666666666666

    Source: Rajpurkar et al. (2016), and version 2 for answers without words.
    """
    _check_answers(answers)
    return max(_f1(normalise_answer(text), normalise_answer(a)) for a in answers)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GenerationEvaluation:
    r"""Generated and correct answers of a split, with exact match and F1.

    A logit that is NaN ends an answer, which is then wrong, and the example is counted
    in ``num_nan``. Where that is so of all examples, shares and intervals are NaN.

    Args:
        exact_match: Share of the texts that are an answer after normalisation.
        exact_match_interval: Its Wilson interval.
        f1: Mean of the token F1.
        f1_interval: Its bootstrap interval; NaN for a single example. The bootstrap
            knows only what it saw: of equal values it is a point.
        num_examples: Number of examples.
        num_nan: Examples with a logit that is NaN.
        texts: What was written on each example.
        answers: The answers of each example that count as right.
        exact: Whether each text is one of them.
        f1_scores: The token F1 of each text.
    """

    exact_match: float
    exact_match_interval: statistics.Interval
    f1: float
    f1_interval: statistics.Interval
    num_examples: int
    num_nan: int
    texts: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]
    exact: np.ndarray
    f1_scores: np.ndarray

    def __repr__(self) -> str:
        exact, f1 = self.exact_match_interval, self.f1_interval
        return (
            f"GenerationEvaluation(exact_match={self.exact_match:.4f} "
            f"[{exact.low:.4f}, {exact.high:.4f}], f1={self.f1:.4f} "
            f"[{f1.low:.4f}, {f1.high:.4f}], num_examples={self.num_examples}, "
            f"num_nan={self.num_nan})"
        )


def evaluate_generation(
    model: Any,
    task: LanguageTask,
    split: str = "validation",
    shots: int | None = None,
    *,
    max_tokens: int = 32,
    until: Sequence[str] = ("\n",),
    batch_size: int = 32,
    buckets: int = 3,
    level: float | int = 0.95,
    progress: Progress | None = None,
) -> GenerationEvaluation:
    """Generates the answers of a split and compares them with the correct ones.

    The likeliest token is written again and again, with a cache of keys and values, up
    to one of the strings ``until``, the end of the text or ``max_tokens``. The
    demonstrations run once for all examples. The right
    answers are the options of a generation, the right label word of a classification,
    and the right option of a choice.

    Args:
        model: The model, with a tokenizer.
        task: The task.
        split: ``"demonstrations"``, ``"validation"`` or ``"test"``.
        shots: Demonstrations in front; all if ``None``.
        max_tokens: Most tokens that are written behind each prompt.
        until: Strings that end an answer; they are left out.
        batch_size: Most examples that run together.
        buckets: Most lengths to which prompts are padded; each compiles.
        level: Level of the intervals.
        progress: Called as ``progress(done, total, part)`` after each batch, with
            numbers of examples; see :mod:`icltheory.batching`.

    Returns:
        The texts, exact match and F1 with their intervals. Both divide by the number of
        examples, whatever the denominator of the task.

    Example:
        >>> task = load_task("questions.yaml")  # doctest: +SKIP
        >>> evaluate_generation(model, task, "test", max_tokens=16)  # doctest: +SKIP

    Source: Rajpurkar et al. (2016).
    """
    check_positive_int("batch_size", batch_size)
    check_open_unit("level", level)
    examples = task.examples(split)
    if not examples:
        raise ValueError(f"{task.name} {split}: expected examples, got none")
    front, tokenizer = task.prefix(shots), model.tokenizer
    texts = [front + task.query(example, shots) for example in examples]
    prompts = [begun(tokenizer, tokenizer.encode(text)) for text in texts]
    checked_prompts(model, prompts, max_tokens)
    sizes = np.array([len(prompt) for prompt in prompts])
    padded = row_lengths(rounded_up(sizes), buckets)
    prefix = prefix_cache(model, prompts)
    texts, lost = [""] * len(prompts), np.zeros(len(prompts), bool)
    count = Count(len(prompts), progress)
    for length in np.unique(padded):
        members = np.flatnonzero(padded == length)
        size = -(-len(members) // -(-len(members) // batch_size))
        for start in range(0, len(members), size):
            numbers = members[start : start + size]
            # The last prompt is repeated to fill the shape.
            filled = np.pad(numbers, (0, size - len(numbers)), mode="edge")
            chosen = [prompts[number] for number in filled]
            found, nan = written_texts(
                model, chosen, max_tokens, until, int(length), prefix
            )
            lost[numbers] = nan[: len(numbers)]
            for number, text in zip(numbers, found, strict=False):
                texts[number] = text
            count.add(len(numbers), "examples")
    answers = tuple(_answers(task, example) for example in examples)
    return _judged(texts, answers, lost, level)


def _answers(task: LanguageTask, example: Any) -> tuple[str, ...]:
    options = task.options(example)
    return options if task.kind == "generation" else (options[example.label],)


def _judged(texts, answers, lost, level) -> GenerationEvaluation:
    pairs = list(zip(texts, answers, lost, strict=True))
    exact = np.array([not nan and exact_match(text, own) for text, own, nan in pairs])
    f1 = np.array([0.0 if nan else token_f1(text, own) for text, own, nan in pairs])
    nothing = bool(lost.all())
    few = nothing or len(f1) < 2
    share = statistics.proportion_interval(int(exact.sum()), len(exact), level=level)
    return GenerationEvaluation(
        exact_match=math.nan if nothing else float(exact.mean()),
        exact_match_interval=_NOTHING if nothing else share,
        f1=math.nan if nothing else float(f1.mean()),
        f1_interval=_NOTHING if few else statistics.bootstrap_interval(f1, level=level),
        num_examples=len(texts),
        num_nan=int(lost.sum()),
        texts=tuple(texts),
        answers=answers,
        exact=exact,
        f1_scores=f1,
    )


def _check_answers(answers: Sequence[str]) -> None:
    if isinstance(answers, str) or not answers:
        raise ValueError(
            f"answers: expected a list of at least one text, got {answers!r}"
        )


def _f1(text: str, answer: str) -> float:
    words, wanted = text.split(), answer.split()
    if not words or not wanted:
        return float(words == wanted)
    common = (Counter(words) & Counter(wanted)).total()
    return 2 * common / (len(words) + len(wanted))
