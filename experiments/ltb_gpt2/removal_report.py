"""Numbers, table, checks and findings of the removals."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from experiments._frame.report import Check
from experiments.ltb_gpt2.config import Config, ModelSetting
from experiments.ltb_gpt2.drawing import risks_by_depth
from experiments.ltb_gpt2.measure import References, Score
from experiments.ltb_gpt2.removal import (
    BLOCKS,
    EVERYWHERE,
    INPUT,
    PRIOR,
    RANDOM,
    READ_OUT,
    Removals,
    Removed,
    floors,
)

AXES = {
    "removal.cells.*.explained": ["depth", "seed"],
    "removal.cells.*.before.per_seed": ["seed"],
    "removal.cells.*.after.*.per_seed": ["seed"],
}
_SCALAR = r"$\langle\beta^*, x\rangle$"
Found, Columns = Mapping[ModelSetting, Removals], Mapping[float, References]
_ROWS = (
    ("<beta*, x> from all", Removed(PRIOR, EVERYWHERE, 0)),
    ("  from the blocks alone", Removed(PRIOR, BLOCKS, 0)),
    ("  from the read-out alone", Removed(PRIOR, READ_OUT, 0)),
    ("<v, x>, v orthogonal, from all", Removed(INPUT, EVERYWHERE, 0)),
    ("  from the blocks alone", Removed(INPUT, BLOCKS, 0)),
    ("  from the read-out alone", Removed(INPUT, READ_OUT, 0)),
    ("a random direction, from all", Removed(RANDOM, EVERYWHERE, 0)),
)


def numbers(config: Config, found: Found, columns: Columns) -> dict[str, Any]:
    """Returns the removals' numbers for ``result.json``."""
    cells = {
        cell.name: {
            "before": _numbers(one.before),
            "after": {kind.name: _numbers(score) for kind, score in one.after.items()},
            "explained": one.explained,
        }
        for cell, one in found.items()
    }
    exact = {
        f"mean_{mean:g}": floors(config, mean, column)._asdict()
        for mean, column in columns.items()
    }
    return {"cells": cells, "floors": exact}


def _numbers(score: Score) -> dict[str, Any]:
    return {**dataclasses.asdict(score), "interval": score.interval}


def table(config: Config, found: Found, columns: Columns) -> Table:
    """Builds the table of errors after removals at the embedding, and exact risks."""
    seeds = len(config.recipe.seeds)
    over = "one seed" if seeds == 1 else f"mean over {seeds} seeds"
    interval = "prompts" if seeds == 1 else "seeds and prompts"
    shown = Table(
        title="squared error after a removal from the query's residual stream at the "
        f"embedding; {over} +- half of the 90 % interval over {interval} (at mean 0: "
        "the same function of x)"
    )
    shown.add_column("")
    for cell in found:
        shown.add_column(f"{cell.model}, mean {cell.mean:g}", justify="right")
    shown.add_row("as trained", *(_text(one.before) for one in found.values()))
    for label, kind in _ROWS:
        shown.add_row(label, *(_text(one.after[kind]) for one in found.values()))
    shown.add_section()
    exact = {mean: floors(config, mean, column) for mean, column in columns.items()}
    lines = {
        "least without <beta*, x>, exact": lambda mean: exact[mean].unseen,
        "least where it is only added, exact": lambda mean: exact[mean].passed,
        "best LSA": lambda mean: columns[mean].attention,
    }
    for label, value in lines.items():
        shown.add_row(label, *(f"{value(cell.mean):.3f}" for cell in found))
    return shown


def _text(score: Score) -> str:
    return f"{score.mean:.3f} +- {score.interval[1] - score.mean:.3f}"


def checks(config: Config, found: Found, columns: Columns) -> list[Check]:
    """Checks that no error after removal at the embedding is below the exact floor."""
    made = []
    for cell, one in found.items():
        exact = floors(config, cell.mean, columns[cell.mean])
        for route, floor in ((EVERYWHERE, exact.unseen), (BLOCKS, exact.passed)):
            score = one.after[Removed(PRIOR, route, 0)]
            made.append(
                Check(
                    f"least risk against {cell.model} at mean {cell.mean:g}, scalar "
                    f"removed ({route})",
                    floor,
                    score.mean,
                    "<=",
                    5 * score.prompt_error,
                )
            )
    return made


def findings(config: Config, found: Found, columns: Columns) -> list[str]:
    """States the results of the removals at the far mean."""
    said = []
    for cell in (ModelSetting(mlp, config.mean) for mlp in (True, False)):
        one, lsa = found[cell], columns[cell.mean].attention
        texts = [
            f"{one.after[Removed(PRIOR, route, 0)].mean:.3g}"
            for route in (READ_OUT, BLOCKS)
        ]
        said.append(
            f"{cell.model} at mean {cell.mean:g} without <beta*, x>: "
            f"{one.before.mean:.3g} before, {texts[0]} if the read-out does not "
            f"receive it, {texts[1]} if the blocks do not read it; best LSA {lsa:.3g}"
        )
    return said


def figure(config: Config, found: Found, columns: Columns) -> Any:
    """Draws errors after removals at every depth, for both models at the far mean."""
    column = columns[config.mean]
    exact, recipe = floors(config, config.mean, column), config.recipe
    lines = {
        "least without\n" + _SCALAR: exact.unseen,
        "best LSA": column.attention,
        "least where it\nis only added": exact.passed,
        "Bayes": column.bayes,
    }
    far = [ModelSetting(mlp, config.mean) for mlp in (True, False)]
    return risks_by_depth(
        {cell.model: found[cell] for cell in far},
        {name: value for name, value in lines.items() if value > 0},
        "Error after a removal from the query's residual stream, mean "
        f"{config.mean:g}, d = {recipe.dim}, M = {config.num_examples}\n"
        f"{len(recipe.seeds)} seeds; bars: 90 % interval; dotted: exact risks",
    )
