"""Differences between the paper and the authors' scripts, as records and a table.

The records name fields of the declarations; what stands in either column is read from
the declarations, so that the table cannot say what the code does not do.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from icltheory.bridge.tasks.catalogue import TASKS

__all__ = ["ProfileDifference", "differences_table", "profile_differences"]


class ProfileDifference(NamedTuple):
    """One difference between the profiles.

    Args:
        topic: What it is about.
        task: Name of the task; ``"all"`` for the search and its report.
        paper: What the paper says.
        authors_code: What the scripts do.
        source: Where both can be read.
        field: Field of the recipe that differs; empty for the search and its report,
            which are no part of a task.
        here: How the scripts' way is had here.

    Source: Yao et al. (2024), sections C.1 to C.3 and the authors' scripts.
    """

    topic: str
    task: str
    paper: str
    authors_code: str
    source: str
    field: str = ""
    here: str = "the profile"


_ONE_TEXT = ("sst2", "agnews", "emoc")
_SUPER = ("rte", "cb", "copa")
_TOPICS = (
    ("prompt of a demonstration", "prompt.demonstration", (*_ONE_TEXT, "mrpc", "cb")),
    ("prompt of the query", "prompt.query", (*_ONE_TEXT, "mrpc", "rte", "cb")),
    ("prompt without demonstrations", "prompt.zero_shot", (*_ONE_TEXT, "mrpc")),
    ("label words shown", "prompt.words", ("cb",)),
    ("options scored", "prompt.options", ("copa",)),
    ("demonstrations in the prompt", "split.keep", _SUPER),
    ("validation rows", "split.validation", ("rte",)),
    ("label of each class", "merge", ("emoc",)),
    ("score of an option", "scoring", ("copa",)),
    ("denominator of the accuracy", "denominator", ("mrpc", "rte", "cb")),
)
_ORIGINS = {
    "prompt": "Table 1; src/my_utils/data_process_{kind}.py, src/data_gptj_{task}.py",
    "split": "section C.3; src/data_gptj_{task}.py",
    "merge": "section C.3; src/my_utils/data_process_{kind}.py",
    "scoring": "Table 1; src/data_gptj_{task}.py",
    "denominator": "Tables 2 to 8; src/data_gptj_{task}.py",
}
_SEARCH = (
    ProfileDifference(
        "rank-r approximation",
        "all",
        "optimal, by the singular value decomposition",
        "torch.svd_lowrank with two iterations and no fixed seed, also at rate 0",
        "section 2; src/laser/matrix_utils.py",
        here="`method=Cumulative(rates, seed)`; rate 0 is left as it is",
    ),
    ProfileDifference(
        "search over rates",
        "all",
        "each rate clips the unpruned model",
        "each rate clips what the rate before it left, in float16",
        "Algorithm 1; src/data_*.py",
        here="`method=Cumulative(rates, seed)`, on a model loaded in float16",
    ),
    ProfileDifference(
        "matrix of the chosen rate on the test set",
        "all",
        "that of the search",
        "the loaded weights, clipped once by another draw",
        "Algorithm 1; src/data_*.py",
        here="`method=Cumulative(rates, seed)`",
    ),
    ProfileDifference(
        "choice of the layer",
        "all",
        "deepest of the k largest condition numbers, k unnamed",
        "written into the scripts: 26 and 27 of GPT-J, 30 of LLaMA 2",
        "Algorithm 1; src/data_*.py",
        here="`algorithm1(layer=...)`",
    ),
    ProfileDifference(
        "rows behind Figures 1 and 2",
        "all",
        "test set",
        "validation rows, as the logs of the scripts show",
        "section 2.2; src/results",
        here="`split`",
    ),
    ProfileDifference(
        "LLaMA 2 checkpoint",
        "all",
        "7B",
        "7B-chat",
        "section 2; src/data_llama2_*.py",
        here="the checkpoint that is loaded",
    ),
    ProfileDifference(
        "ties and NaN",
        "all",
        "not stated",
        "wrong answers; ties of label tokens, so in all tasks but copa",
        "src/data_*.py",
        here="the profile, in `algorithm1`",
    ),
    ProfileDifference(
        "metric of COPA",
        "all",
        "F1",
        "accuracy",
        "Table 8; src/data_*_copa.py",
        here="accuracy in either profile",
    ),
)


def profile_differences() -> tuple[ProfileDifference, ...]:
    """Returns all differences between the profiles ``"paper"`` and ``"authors_code"``.

    Returns:
        First those of the tasks, which ``load_task`` follows, then those of the search
        and its report, which follow from arguments.

    Example:
        >>> [d.task for d in profile_differences() if d.field == "split.keep"]
        ['rte', 'cb', 'copa']
    """
    declared = [
        _record(topic, field, task) for topic, field, tasks in _TOPICS for task in tasks
    ]
    return (*declared, *_SEARCH)


def differences_table(
    differences: Iterable[ProfileDifference] | None = None,
) -> str:
    """Formats the differences as a Markdown table.

    Args:
        differences: The records; all if ``None``.

    Returns:
        The table, one line a record.
    """
    rows = profile_differences() if differences is None else tuple(differences)
    lines = [
        "| topic | task | paper | authors' code | source | here by |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [cell.replace("|", "\\|") for cell in (*row[:5], row.here)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _record(topic: str, field: str, task: str) -> ProfileDifference:
    spec = TASKS[task]
    kind = "cl" if spec.kind == "classification" else "mc"
    paper, code = (_shown(task, p, field) for p in ("paper", "authors_code"))
    source = _ORIGINS[field.split(".")[0]].format(task=task, kind=kind)
    return ProfileDifference(topic, task, paper, code, source, field)


def _shown(task: str, profile: str, field: str) -> str:
    """Formats the value of a recipe's field, in words if necessary."""
    recipe = TASKS[task].recipe(profile)
    value: Any = recipe
    for part in field.split("."):
        value = getattr(value, part)
    if field == "split.keep":
        drawn = recipe.split.per_class * recipe.prompt.num_labels
        return f"all {drawn}" if value is None else f"the first {value} of {drawn}"
    if field == "split.validation":
        left = "all rows that the demonstrations leave"
        return left if value == "rest" else f"{value} of each class"
    if field == "merge":
        values = TASKS[task].labels[0][1]
        words = [recipe.prompt.words[label] for label in value]
        return ", ".join(f"{v} is {w}" for v, w in zip(values, words, strict=True))
    if field == "prompt.zero_shot":
        return f"`{value!r}`" if value else "none; the query alone"
    if field in ("scoring", "denominator"):
        return str(value).replace("_", " ")
    return f"`{value!r}`"
