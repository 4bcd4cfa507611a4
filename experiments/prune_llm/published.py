"""Tables 2 to 8 of Yao et al. (2024) as data: 28 rows of Algorithm 1."""

import collections
import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

from experiments.prune_llm.config import PAPER_RATES
from icltheory.bridge.tasks import TASKS, denominator_of

FILE = Path(__file__).with_name("published.json")
# Families of the models, and the sizes that identify their checkpoints.
MODELS = {
    "GPT-J-6B": {"family": "gptj", "num_layers": 28, "width": 4096},
    "LLAMA2-7B": {"family": "llama", "num_layers": 32, "width": 4096},
}
MODULES = ("mlp", "attn")


@dataclasses.dataclass(frozen=True)
class PublishedRow:
    """A row of one of the tables; scores are text, which preserves their digits.

    Attributes:
        table: Number of the table.
        task: Name of the task here.
        model: Name of the model there.
        layer: The pruned layer, from 0.
        module: The pruned module.
        rate: Clipping rate that was chosen.
        before: Test score of the unpruned model, as printed.
        after: Test score of the pruned model, as printed.
        num_examples: Test examples of the task.
        denominator: What the two scores fit, see :func:`denominator`.
    """

    table: int
    task: str
    model: str
    layer: int
    module: str
    rate: float
    before: str
    after: str
    num_examples: int
    denominator: str

    @property
    def family(self) -> str:
        """Family of the model."""
        return str(MODELS[self.model]["family"])

    @property
    def mark(self) -> str:
        """Mark of a score that was divided by n - 1."""
        return "*" if self.denominator == "n-1" else ""


def denominator(scores: tuple[str, ...], num_examples: int) -> str:
    """Which denominator reproduces the printed scores: n, n - 1, both or neither.

    Args:
        scores: Scores as printed, of the same examples.
        num_examples: How many there are.

    Returns:
        ``"n"`` or ``"n-1"`` if all scores fit that one alone or in common with the
        other; ``"both"`` if they do not tell, ``"neither"`` if they contradict.
    """
    fits = [denominator_of(s, num_examples, len(s.partition(".")[2])) for s in scores]
    over_n = all(fit.over_n for fit in fits)
    over_less = all(fit.over_n_minus_1 for fit in fits)
    if over_n:
        return "both" if over_less else "n"
    return "n-1" if over_less else "neither"


@functools.cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Returns the 28 published rows, checked.

    Raises:
        ValueError: If a row is missing, twice there or impossible.
    """
    return read_rows(json.loads(FILE.read_text()))


def read_rows(stored: dict[str, Any]) -> tuple[PublishedRow, ...]:
    """Parses the rows from the contents of a file.

    Args:
        stored: ``{"sizes": {task: test examples}, "rows": [...]}``.

    Returns:
        One record for each row.

    Raises:
        ValueError: If a row is missing, twice there or impossible: seven tasks, two
            models and two modules; a layer for each model and module; rates of the
            paper's grid; one score before for both modules of a model; no gain at
            rate 0; and scores that are counts over n or n - 1.
    """
    sizes = stored["sizes"]
    scores: dict[str, list[str]] = collections.defaultdict(list)
    for row in stored["rows"]:
        scores[row["task"]] += [row["before"], row["after"]]
    fits = {task: denominator(tuple(s), sizes[task]) for task, s in scores.items()}
    rows = tuple(
        PublishedRow(
            table=row["table"],
            task=row["task"],
            model=row["model"],
            layer=row["layer"],
            module=row["module"],
            rate=float(row["rate"]),
            before=row["before"],
            after=row["after"],
            num_examples=sizes[row["task"]],
            denominator=fits[row["task"]],
        )
        for row in stored["rows"]
    )
    _check(rows)
    return rows


def _check(rows: tuple[PublishedRow, ...]) -> None:
    places = [(row.task, row.model, row.module) for row in rows]
    wanted = [(task, m, part) for task in TASKS for m in MODELS for part in MODULES]
    if sorted(places) != sorted(wanted):
        raise ValueError(
            f"rows: expected one row for each of the {len(wanted)} combinations of "
            f"task, model and module, got {len(places)} rows for {len(set(places))} "
            "combinations"
        )
    unpruned: dict[tuple[str, str], str] = {}
    layers: dict[tuple[str, str], int] = {}
    for row in rows:
        where = f"{row.task}, {row.model}, {row.module}"
        before = unpruned.setdefault((row.task, row.model), row.before)
        layer = layers.setdefault((row.model, row.module), row.layer)
        if row.rate not in PAPER_RATES:
            raise ValueError(f"{where}: expected a rate of the paper, got {row.rate}")
        if row.before != before:
            raise ValueError(f"{where}: expected {before} before, got {row.before}")
        if row.layer != layer:
            raise ValueError(f"{where}: expected layer {layer}, got {row.layer}")
        if row.rate == 0 and row.before != row.after:
            raise ValueError(f"{where}: expected no change at rate 0, got {row.after}")
        if row.denominator == "neither":
            raise ValueError(
                f"{where}: expected counts over {row.num_examples} or one less, got "
                f"{row.before} and {row.after}"
            )
