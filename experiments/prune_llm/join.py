"""``python -m experiments.prune_llm.join RUN RUN``: several models or modules together.

One run prunes one checkpoint. This puts finished runs of several checkpoints, or of one
checkpoint's modules, into one table with Holm's correction over all of it, and draws
Figure 4 of Yao et al. (2024): for each task two bars a model. Of a model's modules the
bar is that which validation prefers, so that no test example takes part in the choice.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.joining import common_config, from_result, read_join_line
from experiments._frame.looks import plain_words
from experiments._frame.program import run_program
from experiments._frame.report import Report
from experiments._frame.run import Run
from experiments._frame.stored import read_config
from experiments.prune_llm.bars import ModelBars, before_and_after
from experiments.prune_llm.config import PRESETS, Config
from icltheory.statistics import adjust_holm, proportion_interval

# Fields that may differ between runs, or that do not affect results.
_FREE = {
    "checkpoint": "",
    "revision": "",
    "modules": ("mlp",),
    "batch_size": 1,
    "layers_at_once": 1,
}


@dataclasses.dataclass(frozen=True)
class JoinedRow:
    """A row of Algorithm 1 in one of the joined runs.

    Attributes:
        model: Name of the checkpoint.
        row: The row of ``result.json``.
        published: The two published scores; ``None`` if there are none.
        over_n: What turns them into counts over n, where they are over n - 1.
        holm: p-value after Holm's correction over all runs.
    """

    model: str
    row: dict[str, Any]
    published: tuple[float, float] | None
    over_n: float = 1.0
    holm: float = 1.0

    @property
    def verdict(self) -> str:
        """Whether the change is significantly better or worse, or why it is not."""
        if self.row["rate"] == 0:
            return "not pruned"
        level, difference = self.row["comparison"]["level"], self._difference
        if self.holm > 1 - level:
            return "could be chance"
        return "better" if difference > 0 else "worse"

    @property
    def _difference(self) -> float:
        return self.row["comparison"]["difference"]


def join(folders: list[Path], output: Path) -> dict:
    """Joins finished runs: writes the table and Figure 4.

    Raises:
        ValueError: if a folder holds no finished run, the runs differ in more than
            checkpoint and modules, or two have a checkpoint and a module in common.
    """
    configs = [read_config(folder, PRESETS["tiny"]) for folder in folders]
    _check_apart(configs)
    common = common_config(
        folders,
        configs,
        lambda config: dataclasses.replace(config, **_FREE),
        "checkpoint and modules",
    )
    rows = []
    for folder, config in zip(folders, configs, strict=True):
        rows += from_result(folder, lambda r, c=config: _rows(r, _name(c.checkpoint)))
    joined = dataclasses.replace(
        common,
        checkpoint=", ".join(dict.fromkeys(c.checkpoint for c in configs)),
        modules=tuple(dict.fromkeys(m for c in configs for m in c.modules)),
    )
    run = Run.create(output, "prune_llm", "joined", joined)
    found = report(joined, corrected(rows))
    return run.finish(found, runs=[str(folder) for folder in folders])


def report(config: Config, rows: list[JoinedRow]) -> Report:
    """Builds the table, Figure 4 and the numbers of joined rows."""
    verdicts = [row.verdict for row in rows]
    pruned = len(rows) - verdicts.count("not pruned")
    return Report(
        {"algorithm1": [_numbers(row) for row in rows]},
        tables=[_table(rows)],
        findings=[
            f"Algorithm 1 pruned in {pruned} of {len(rows)} rows; on the test set "
            f"{verdicts.count('better')} are better and {verdicts.count('worse')} "
            "worse, after Holm's correction over all runs."
        ],
        figures={"figure4_bars.png": _figure(config, rows)},
        interval_level=config.level,
    )


def corrected(rows: list[JoinedRow]) -> list[JoinedRow]:
    """Returns the rows with Holm's correction over all pruned ones."""
    tested = [row.row["rate"] > 0 for row in rows]
    holm = np.ones(len(rows))
    if any(tested):
        p = [row.row["p_value"] for row, t in zip(rows, tested, strict=True) if t]
        holm[tested] = adjust_holm(p)
    return [
        dataclasses.replace(row, holm=float(p))
        for row, p in zip(rows, holm, strict=True)
    ]


def preferred(rows: list[JoinedRow]) -> JoinedRow:
    """Returns the row with the best validation score, the first of equal ones."""
    return max(rows, key=lambda row: row.row["validation_after"])


def _check_apart(configs: list[Config]) -> None:
    seen: set[tuple[str, str]] = set()
    for config in configs:
        for module in config.modules:
            if (config.checkpoint, module) in seen:
                raise ValueError(
                    "runs: expected each checkpoint and module once, got "
                    f"{module} of {config.checkpoint} twice"
                )
            seen.add((config.checkpoint, module))


def _name(checkpoint: str) -> str:
    """Returns the last part of a path or of a name on the hub."""
    return checkpoint.rstrip("/").rpartition("/")[2]


def _rows(result: dict[str, Any], model: str) -> list[JoinedRow]:
    published = {}
    for b in result["beside published"]:
        p = b["published"]
        scores, n = (float(p["before"]), float(p["after"])), p["num_examples"]
        over_n = 1 - 1 / n if p["denominator"] == "n-1" else 1.0
        published[p["task"], p["module"]] = (scores, over_n)
    rows = []
    for row in result["algorithm1"]:
        scores, over_n = published.get((row["task"], row["module"]), (None, 1.0))
        rows.append(JoinedRow(model, row, scores, over_n))
    return rows


def _table(rows: list[JoinedRow]) -> Table:
    table = Table(title="Algorithm 1 in all runs: test accuracy before and after")
    names = ("model", "task", "module", "layer", "rate", "before", "after", "published")
    for name in (*names, "p", "Holm", "verdict"):
        table.add_column(name)
    for joined in rows:
        r, pair = joined.row, joined.published
        table.add_row(
            joined.model,
            r["task"],
            r["module"],
            f"{r['layer']}",
            f"{r['rate']:g}",
            f"{r['test_before']:.4f}",
            f"{r['test_after']:.4f}",
            "-" if pair is None else f"{pair[0]:g} to {pair[1]:g}",
            f"{r['p_value']:.2g}" if r["rate"] else "-",
            f"{joined.holm:.2g}" if r["rate"] else "-",
            joined.verdict,
        )
    return table


def _figure(config: Config, rows: list[JoinedRow]) -> Any:
    models = list(dict.fromkeys(row.model for row in rows))
    tasks: dict[str, dict[str, ModelBars]] = {}
    for task in dict.fromkeys(row.row["task"] for row in rows):
        bars = tasks.setdefault(plain_words(task), {})
        for model in models:
            own = [r for r in rows if (r.row["task"], r.model) == (task, model)]
            if own:
                bars[model] = _bars(preferred(own), config.level)
    title = (
        "Test accuracy before and after Algorithm 1\n(of a model's modules the one "
        f"that validation prefers; {100 * config.level:g} % intervals)"
    )
    return before_and_after(tasks, models, title)


def _bars(joined: JoinedRow, level: float) -> ModelBars:
    found = joined.row["comparison"]
    total = found["num_examples"]

    def bar(accuracy):
        ends = proportion_interval(round(accuracy * total), total, level=level)
        return (accuracy, float(ends.low), float(ends.high))

    published = joined.published
    if published is not None:
        published = (published[0] * joined.over_n, published[1] * joined.over_n)
    return ModelBars(bar(found["before"]), bar(found["after"]), published)


def _numbers(joined: JoinedRow) -> dict[str, Any]:
    return {
        "model": joined.model,
        **joined.row,
        "holm": joined.holm,
        "verdict": joined.verdict,
        "published": joined.published,
    }


def main(argv: list[str] | None = None) -> dict:
    """Parses the command line and joins the runs."""
    given = read_join_line(argv, "prune_llm.join", __doc__.partition("\n")[0])
    return join(list(given.runs), given.output)


if __name__ == "__main__":
    run_program(main)
