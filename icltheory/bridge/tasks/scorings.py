r"""The ways to score the options of an example, in one table; printed scores as counts.

A device computes one of three measures: the logits of label tokens, the sum of the
log-likelihoods of an option's tokens, or the mean of all logits. A scoring divides the
measure by a length, or combines it with the measures of reference prompts, which are
those of a further task that the same model answers, pruned in the same way.
"""

import dataclasses
import math
import string
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from icltheory._checks import check_integer, check_nonnegative_int

__all__ = [
    "CONTENT_FREE",
    "SCORINGS",
    "Scoring",
    "answer_prefix",
    "calibrated",
    "pointwise_mutual_information",
    "possible_counts",
    "reference_task",
    "without_content",
]

# The content-free inputs of Zhao et al. (2021).
CONTENT_FREE = ("N/A", "", "[MASK]")


class Scoring(NamedTuple):
    """One way to score the options of an example.

    Args:
        measure: What the device computes: ``"label_token"``, ``"log_likelihood"`` or
            ``"mean_logit"``.
        length: What the measure is divided by, from an option and the number of its
            tokens; ``None`` for nothing.
        references: Tasks that ask the reference prompts of a task, given the split and
            the number of demonstrations; each has one example for each of the split.
        combine: From the measures of an example, ``(..., K)``, and those of its
            reference prompts, ``(..., R, K)``, to scores.
    """

    measure: str
    length: Callable[[str, int], int] | None = None
    references: Callable[[Any, str, int | None], list[Any]] | None = None
    combine: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None


def pointwise_mutual_information(
    measures: np.ndarray, references: np.ndarray
) -> np.ndarray:
    r"""Pointwise mutual information between the prompt and each option.

    .. math:: s_k = \log p(o_k \mid \text{prompt}) - \log p(o_k \mid \text{neutral})

    from log-likelihoods after the prompt, ``(..., K)``, and after the neutral one,
    ``(..., 1, K)``.

    Example:
        >>> measures, neutral = np.array([-1.0, -2.0]), np.array([[-0.5, -3.0]])
        >>> pointwise_mutual_information(measures, neutral).tolist()
        [-0.5, 1.0]

    Source: Holtzman et al. (2021).
    """
    return measures - references[..., 0, :]


def calibrated(measures: np.ndarray, references: np.ndarray) -> np.ndarray:
    r"""Log-probabilities of options, calibrated by content-free inputs.

    .. math:: s_k = \log \frac{p_k / \bar p_k}{\sum_j p_j / \bar p_j} , \qquad
        \bar p_k = \frac1R \sum_{r=1}^R p_{rk}

    with :math:`p_k = p(o_k \mid \text{prompt})` and :math:`p_{rk}` the same after the
    prompt whose question has the r-th input; log-likelihoods ``(..., K)`` and
    ``(..., R, K)`` are given. A factor that all :math:`p_k` or all :math:`\bar p_k`
    share cancels.

    Example:
        >>> p, free = np.log([0.6, 0.4]), np.log([[0.8, 0.2], [0.7, 0.3]])
        >>> np.exp(calibrated(p, free)).round(3).tolist()
        [0.333, 0.667]

    Source: Zhao et al. (2021), section 4 with b = 0.
    """
    free = logsumexp(references, axis=-2) - math.log(references.shape[-2])
    ratio = measures - free
    return ratio - logsumexp(ratio, axis=-1, keepdims=True)


def answer_prefix(task: Any, shots: int | None = None) -> str:
    """Text between the last field of a question and the answer, without spaces before.

    Example:
        >>> from icltheory.bridge.tasks import LanguageTask, PromptTemplate
        >>> template = PromptTemplate("", "{text} It is", ("dry", "wet"))
        >>> answer_prefix(LanguageTask(
        ...     "weather", "paper", "classification", ("dry", "wet"), (), (), (),
        ...     template))
        'It is'
    """
    parts = list(string.Formatter().parse(_question(task, shots)))
    literal, field = parts[-1][:2] if parts else ("", None)
    return "" if field is not None else literal.lstrip(" ")


def _neutral(task: Any, split: str, shots: int | None) -> list[Any]:
    """Returns the task with only the answer prefix as its prompt."""
    prefix = answer_prefix(task, shots)
    if not prefix:
        raise ValueError(
            f"scoring: expected a question with words after its last field for pmi, "
            f"got {_question(task, shots)!r} of {task.name}"
        )
    text = prefix.replace("{", "{{").replace("}", "}}")
    template = dataclasses.replace(task.template, query=text, zero_shot="")
    changes = {"demonstrations": (), "template": template}
    return [_asking(task, split, task.examples(split), changes)]


def without_content(task: Any, content: str, split: str, shots: int | None) -> Any:
    """Returns the task with a content-free input in place of every question.

    Its ``validation`` has an example for each of the split, and its scoring is the sum
    of log-likelihoods. Fields that the options use keep their texts.

    Source: Zhao et al. (2021).
    """
    kept = {name for text in task.template.options for name in _fields(text)}
    replaced = _fields(_question(task, shots)) - kept
    examples = tuple(
        example._replace(fields={**example.fields, **dict.fromkeys(replaced, content)})
        for example in task.examples(split)
    )
    demonstrations = task.demonstrations[:shots]
    return _asking(task, split, examples, {"demonstrations": demonstrations})


def _without_content(task: Any, split: str, shots: int | None) -> list[Any]:
    return [without_content(task, content, split, shots) for content in CONTENT_FREE]


def _asking(task: Any, split: str, examples: Any, changes: dict[str, Any]) -> Any:
    return dataclasses.replace(
        task,
        name=f"{task.name} {split}, reference prompt",
        scoring="log_likelihood",
        validation=examples,
        test=(),
        **changes,
    )


def _question(task: Any, shots: int | None) -> str:
    """Returns the question's template after a number of demonstrations."""
    shown = len(task.demonstrations) if shots is None else shots
    return (not shown and task.template.zero_shot) or task.template.query


def _fields(template: str) -> set[str]:
    return {field for _, field, *_ in string.Formatter().parse(template) if field}


_SUM = "log_likelihood"

# The scorings by name.
SCORINGS: dict[str, Scoring] = {
    "label_token": Scoring("label_token"),
    "log_likelihood": Scoring(_SUM),
    "average_log_likelihood": Scoring(_SUM, lambda option, tokens: tokens),
    "log_likelihood_per_character": Scoring(
        _SUM, lambda option, tokens: len(option.lstrip())
    ),
    "log_likelihood_per_byte": Scoring(
        _SUM, lambda option, tokens: len(option.lstrip().encode())
    ),
    "pmi": Scoring(_SUM, None, _neutral, pointwise_mutual_information),
    "contextual_calibration": Scoring(_SUM, None, _without_content, calibrated),
    "mean_logit": Scoring("mean_logit"),
}


def reference_task(
    task: Any, split: str, shots: int | None = None
) -> tuple[Any, np.ndarray]:
    """The task of a split's reference prompts, and which belong to each example.

    Each of the prompts is one ``validation`` example; their numbers are ``(n, R)``.
    """
    make = SCORINGS[task.scoring].references
    assert make is not None
    asked: dict[Any, int] = {}
    chosen, numbers = [], []
    derived = make(task, split, shots)
    for other in derived:
        for example in other.validation:
            text = other.query(example), other.options(example)
            if text not in asked:
                asked[text] = len(asked)
                chosen.append(example)
            numbers.append(asked[text])
    whole = dataclasses.replace(derived[0], validation=tuple(chosen))
    return whole, np.array(numbers).reshape(len(derived), -1).T


def possible_counts(score: Any, n: int, digits: int) -> dict[str, tuple[int, ...]]:
    r"""Finds the counts of right answers, over n or n - 1, that print as a score.

    .. math::
        -\tfrac12 10^{-d} \le \frac{k}{m} - s < 10^{-d} , \qquad m \in \{ n, n - 1 \}

    for a score s in [0, 1] with d digits after the point, which takes in both rounding
    and cutting off: published tables do both. All arithmetic is exact. If many examples
    meet few digits, both denominators fit.

    Example:
        >>> possible_counts(0.56884, 277, 5), possible_counts(0.76434, 7600, 5)
        ({'n-1': (157,)}, {'n': (5809,)})

    Source: Yao et al. (2024), Tables 2 to 8.
    """
    check_integer("n", n, 2)
    check_nonnegative_int("digits", digits)
    exact, unit = Fraction(str(score)), Fraction(1, 10**digits)
    if not 0 <= exact <= 1:
        raise ValueError(f"score: expected a number in [0, 1], got {score}")
    if (exact / unit).denominator != 1:
        raise ValueError(f"score: expected at most {digits} digits, got {score}")
    found = {}
    for name, total in (("n", n), ("n-1", n - 1)):
        lowest = max(0, math.ceil((exact - unit / 2) * total))
        highest = min(total, math.ceil((exact + unit) * total) - 1)
        if lowest <= highest:
            found[name] = tuple(range(lowest, highest + 1))
    return found
