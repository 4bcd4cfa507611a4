"""Compares our rows with those of Tables 2 to 8, and lists differing settings."""

import dataclasses

from rich.table import Table

from experiments.prune_llm.config import PAPER_RATES, Config
from experiments.prune_llm.published import MODELS, PublishedRow, published_rows
from experiments.prune_llm.study import Study
from experiments.prune_llm.tables import TestedChoice
from icltheory.statistics import Comparison

NO_ROW = (
    "Published tables: no row of Tables 2 to 8 (Yao et al. 2024) is of a model with "
    "this architecture and depth, on one of these tasks."
)
NOTE = (
    "*: right answers over n - 1, as Tables 6 and 7 have them; ours are divided "
    "alike. In every row theirs clips by a randomised decomposition, each rate what "
    "the rate before left, and ours is the best approximation of the original weights."
)


@dataclasses.dataclass(frozen=True)
class RowBeside:
    """One of our rows with its published counterpart.

    Attributes:
        published: The published row.
        layer: Our layer.
        rate: Our rate.
        before: Our score of the unpruned model, by the denominator of the row.
        after: Our score of the pruned model, likewise.
        differences: Settings that are not theirs, in words.
    """

    published: PublishedRow
    layer: int
    rate: float
    before: float
    after: float
    differences: tuple[str, ...]


def beside_published(study: Study, rows: list[TestedChoice]) -> list[RowBeside]:
    """Pairs our rows with published ones, if the model is one of the tables'.

    Args:
        study: The study.
        rows: Its rows of Algorithm 1.

    Returns:
        One record for each of our rows that has a published one: of the same task and
        module, and of a model of the same family and depth.
    """
    found = []
    for row in rows:
        for published in published_rows():
            model = MODELS[published.model]
            here = (study.family, study.num_layers, row.case.task, row.module)
            there = (model["family"], model["num_layers"])
            if here == (*there, published.task, published.module):
                found.append(_beside(study, row, published))
    return found


def beside_table(found: list[RowBeside], checkpoint: str) -> Table | str:
    """Builds the table of pairs, or one line of text if there are none."""
    if not found:
        return NO_ROW
    table = Table(
        title=f"Ours beside the published tables ({checkpoint} / Yao et al. 2024, "
        f"Tables 2 to 8)\n{NOTE}"
    )
    names = ("table", "task", "module", "layer", "rate", "before", "after", "ours has")
    for name in names:
        table.add_column(name)
    for b in found:
        p = b.published
        table.add_row(
            f"{p.table}",
            p.task,
            p.module,
            f"{b.layer} / {p.layer}",
            f"{b.rate:g} / {p.rate:g}",
            f"{b.before:.4f}{p.mark} / {p.before}{p.mark}",
            f"{b.after:.4f}{p.mark} / {p.after}{p.mark}",
            ", ".join(b.differences) or "the same settings",
        )
    return table


def _beside(study: Study, row: TestedChoice, published: PublishedRow) -> RowBeside:
    result = row.result
    before, after = _scores(result.comparison, published.denominator)
    differences = (
        *_of_model(study, published),
        *_of_config(study.config),
        *_of_row(row, published, study.config),
    )
    return RowBeside(published, result.layer, result.rate, before, after, differences)


def _scores(found: Comparison, denominator: str) -> tuple[float, float]:
    total = found.num_examples
    by = total - 1 if denominator == "n-1" and total > 1 else total
    return found.before * total / by, found.after * total / by


def _of_model(study: Study, published: PublishedRow) -> list[str]:
    (width,) = {c.shape[1] for c in study.conditions if c.matrix == "W_Q"}
    wanted = MODELS[published.model]["width"]
    return [] if width == wanted else [f"width {width} for {wanted}"]


def _of_config(config: Config) -> list[str]:
    found = []
    if config.profile != "authors_code":
        found.append("the paper's prompts for the scripts'")
    if config.rates != PAPER_RATES:
        found.append("other rates")
    if config.dtype != "float16":
        found.append(f"{config.dtype} for float16")
    if config.race:
        found.append("a race for the full search")
    return found


def _of_row(row: TestedChoice, published: PublishedRow, config: Config) -> list[str]:
    found, total = [], row.result.comparison.num_examples
    if row.result.layer != published.layer:
        found.append("another layer")
    if (row.case.seed, row.case.order) != (0, 0) or config.shots[0] != -1:
        found.append("other demonstrations")
    if total != published.num_examples:
        found.append(f"{total} for {published.num_examples} test examples")
    return found
