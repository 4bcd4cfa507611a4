"""Finds problems of prompts before a model is evaluated on them."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

__all__ = [
    "Finding",
    "check_labels",
    "check_overlap",
    "check_prompt",
    "enforce",
    "gather",
    "label_tokens",
]

# The token count of two parts can differ from that of the whole by this much.
_SLACK = 8


class Finding(NamedTuple):
    """One problem found in one or several examples.

    Args:
        level: ``"error"`` or ``"warning"``.
        code: ``"trailing-space"``, ``"label-tokens"``, ``"too-long"``,
            ``"vocabulary"``, ``"boundary"`` or ``"overlap"``.
        where: Task and split.
        message: What was found and in which example.
        examples: Rows of all examples it was found in; empty if it is the task's.
    """

    level: str
    code: str
    where: str
    message: str
    examples: tuple[int, ...] = ()


def label_tokens(
    encode: Callable[[str], Sequence[int]], options: Sequence[str]
) -> tuple[tuple[int, ...], ...]:
    """Tokens of each label word when it follows another word.

    The word is encoded behind a letter and the letter's tokens are taken away, so that
    tokenizers that mark spaces at the front, and those that add a first token, agree.

    Args:
        encode: The tokenizer.
        options: Label words with the space in front of them.

    Returns:
        Tokens of each option.

    Example:
        >>> label_tokens(lambda text: [len(word) for word in text.split(" ")], [" yes"])
        ((3,),)
    """
    before = list(encode("a"))
    behind = []
    for option in options:
        whole = list(encode("a" + option))
        same = 0
        while same < min(len(before), len(whole)) and before[same] == whole[same]:
            same += 1
        behind.append(tuple(whole[same:]))
    return tuple(behind)


def one_token(option: str, count: int) -> str:
    """Returns the message for a label of several tokens, with a remedy."""
    return (
        f"expected one token for the label {option!r}, got {count}; "
        'dataclasses.replace(task, scoring="average_log_likelihood") compares labels '
        "of any length"
    )


def check_labels(
    encode: Callable[[str], Sequence[int]], options: Sequence[str], name: str
) -> tuple[Finding, ...]:
    """Finds label words that are not one token, or that share a token.

    Args:
        encode: The tokenizer.
        options: Label words with the space in front of them.
        name: Name of the task.

    Returns:
        The errors.
    """
    tokens = label_tokens(encode, options)
    found = [
        Finding(
            "error",
            "label-tokens",
            name,
            f"{name}: {one_token(option, len(ids))}",
        )
        for option, ids in zip(options, tokens, strict=True)
        if len(ids) != 1
    ]
    if not found and len(set(tokens)) < len(tokens):
        message = (
            f"{name}: expected distinct tokens for the labels {tuple(options)}, got "
            f"{[number for (number,) in tokens]}"
        )
        found.append(Finding("error", "label-tokens", name, message))
    return tuple(found)


def check_prompt(
    query: str,
    options: Sequence[str],
    *,
    prefix: str = "",
    encode: Callable[[str], Sequence[int]] | None = None,
    context_length: int | None = None,
    prefix_tokens: int | None = None,
    example: tuple[str, int] = ("prompt", 0),
) -> tuple[Finding, ...]:
    """Finds prompts that end in a space or exceed the context length.

    A question that ends in a space is followed by a label whose token begins with one:
    the model is asked about two spaces, which it rarely saw.

    Args:
        query: The question.
        options: The answers.
        prefix: The demonstrations.
        encode: The tokenizer; lengths are not checked without it.
        context_length: Most tokens that fit; not checked if ``None``.
        prefix_tokens: Tokens of the prefix if they were counted before. The prefix is
            then encoded again only where the limit is near.
        example: Split and row, for messages.

    Returns:
        The findings.

    Example:
        >>> check_prompt("Is it true? ", [" Yes", " No"])[0].code
        'trailing-space'
    """
    where, row = example
    found = []
    spaced = [option for option in options if option.startswith(" ")]
    twice = [option for option in options if option.startswith("  ")]
    if twice:
        message = f"{where} example {row}: two spaces stand before {twice[0]!r}"
        found.append(Finding("warning", "trailing-space", where, message, (row,)))
    if query.endswith((" ", "\t")) and spaced:
        message = (
            f"{where} example {row}: a space stands before the answer {spaced[0]!r}"
        )
        found.append(Finding("warning", "trailing-space", where, message, (row,)))
    if encode is not None and context_length is not None:
        longest = max(
            _length(encode, prefix, query + option, prefix_tokens, context_length)
            for option in options
        )
        if longest > context_length:
            message = (
                f"{where} example {row}: expected at most {context_length} tokens, "
                f"got {longest}"
            )
            found.append(Finding("error", "too-long", where, message, (row,)))
    return tuple(found)


def check_overlap(
    where: str, examples: Iterable[Any], test: Iterable[Any]
) -> tuple[Finding, ...]:
    """Finds examples whose texts also occur in the test set.

    Args:
        where: Split, for messages.
        examples: The examples to look at.
        test: The examples of the test set.

    Returns:
        One warning for each of them.
    """
    known = {tuple(example.fields.values()) for example in test}
    return tuple(
        Finding(
            "warning",
            "overlap",
            where,
            f"{where} example {example.index}: the same text is in the test set",
            (example.index,),
        )
        for example in examples
        if tuple(example.fields.values()) in known
    )


def gather(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Merges findings of one kind, with the message of the first.

    Args:
        findings: Findings of single examples.

    Returns:
        One finding a kind and split, with all its examples.
    """
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.code, finding.where), []).append(finding)
    joined = []
    for first, *others in groups.values():
        rows = tuple(
            dict.fromkeys(row for one in (first, *others) for row in one.examples)
        )
        others = len(rows) - 1 if rows else len(others)
        more = f" (and {others} more)" if others else ""
        joined.append(first._replace(message=first.message + more, examples=rows))
    return tuple(joined)


def enforce(findings: Iterable[Finding]) -> None:
    """Raises the first error, and issues all warnings.

    Args:
        findings: What a check found.

    Returns:
        Nothing.
    """
    listed = tuple(findings)
    for finding in listed:
        if finding.level == "error":
            raise ValueError(finding.message)
    for finding in listed:
        warnings.warn(finding.message, UserWarning, stacklevel=2)


def _length(
    encode: Callable[[str], Sequence[int]],
    prefix: str,
    rest: str,
    prefix_tokens: int | None,
    limit: int,
) -> int:
    """Number of tokens, counted exactly only near the limit."""
    if prefix_tokens is not None:
        estimate = prefix_tokens + len(encode(rest))
        if estimate + _SLACK <= limit:
            return estimate
    return len(encode(prefix + rest))
