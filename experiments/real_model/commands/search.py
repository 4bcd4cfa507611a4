"""Searches for several modules to clip together, and tests the choice once.

``python -m experiments.real_model search --model FOLDER --task NAME --budget 40`` tries
every layer, module and rate, keeps the best on validation, tries all others on top of
it, and so on until nothing improves or the budget of evaluations is spent; with
``--beam`` the best few are kept. The unpruned and the chosen model then answer the test
set once. ``--records`` keeps all answers, so that a search that was killed goes on.
"""

import dataclasses
import itertools
import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments._frame.fields import check_at_least
from experiments._frame.program import continue_with
from experiments._frame.progress import Activity, Display
from experiments.real_model.commands.options import (
    Prunings,
    TaskOptions,
    as_row,
    check_file,
    read_options,
    read_prunings,
    save_numbers,
)
from icltheory.bridge import CompositionSearch, search_compositions
from icltheory.bridge.answer_cache import facts_of
from icltheory.bridge.spectra import SingularSystems
from icltheory.pruning import Intervention


@dataclasses.dataclass(frozen=True)
class Options(TaskOptions):
    """Options of the command ``search``.

    Attributes:
        layers: Layers of the candidates, counted from the last if negative; all if
            empty.
        modules: Modules of the candidates, one at a time.
        rates: Clipping rates of the candidates; none if no number follows.
        ranks: Ranks of the candidates, beside the rates.
        candidates: Further candidates, such as head:rank=16 or 3:W_Q,W_K:0.5. May be
            repeated.
        budget: Most evaluations: a model that answers the validation set is one.
        beam: How many compositions of each size are kept; 1 is greedy.
        layers_at_once: Layers whose pruned matrices are held at the same time.
        records: File of the answers, from which a search goes on; none is kept if left
            out.
        systems: Folder of singular systems, so that no matrix is decomposed twice; none
            are kept if left out.
        save: File for the result as JSON; none is written if left out.
    """

    layers: tuple[int, ...] = ()
    modules: tuple[str, ...] = ("mlp", "attn")
    rates: tuple[float, ...] = (0.5, 0.75, 0.9)
    ranks: tuple[int, ...] = ()
    candidates: Prunings = ()
    budget: int = 50
    beam: int = 1
    layers_at_once: int = 4
    records: Path | None = None
    systems: Path | None = None
    save: Path | None = None

    def check(self) -> None:
        """Raises for options that are invalid whatever the model is."""
        super().check()
        check_at_least(self, 2, "budget")
        check_at_least(self, 1, "beam", "layers_at_once")
        _ = read_prunings("candidates", self.candidates)
        check_file("records", self.records)
        check_file("save", self.save)

    def every_candidate(self, num_layers: int) -> list[Intervention]:
        """All candidates: every layer, module and strength, and the additional ones."""
        layers = self.layers or range(num_layers)
        for layer in layers:
            if not -num_layers <= layer < num_layers:
                raise ValueError(
                    f"layers: expected -{num_layers} to {num_layers - 1}, got {layer}"
                )
        strengths: list[dict[str, Any]] = [{"rate": rate} for rate in self.rates]
        strengths += [{"rank": rank} for rank in self.ranks]
        grid = [
            Intervention(layer % num_layers, module, **strength)
            for layer, module, strength in itertools.product(
                layers, self.modules, strengths
            )
        ]
        return [*grid, *read_prunings("candidates", self.candidates)]


def main(argv: list[str] | None = None) -> None:
    """Parses the command line, searches and prints the results."""
    options = read_options(Options, argv, "search", __doc__)
    task, model = options.load_task(), options.load_model()
    candidates = options.every_candidate(model.num_layers)
    console = Console(soft_wrap=True, highlight=False)
    console.print(options.describe(model, task))
    console.print(
        f"{len(candidates)} candidates, at most {options.budget} evaluations of "
        f"{len(task.validation)} examples"
    )
    if options.records is not None:
        continue_with("the same command, which reads the answers kept so far")
    display = Display(Console(stderr=True))
    with display.during(Activity("searching", unit="answers")) as activity:
        found = search_compositions(
            model,
            task,
            candidates,
            budget=options.budget,
            beam=options.beam,
            shots=options.given_shots,
            records=options.records,
            cache=None if options.systems is None else SingularSystems(options.systems),
            at_least_one=options.at_least_one,
            level=options.level,
            batch_size=options.batch_size,
            layers_at_once=options.layers_at_once,
            progress=activity.follow,
        )
    console.print(_table(found), soft_wrap=False)
    console.print(f"{found.evaluations} evaluations; the search ended: {found.stopped}")
    console.print(f"test: {found}")
    if found.path:
        console.print(f"to keep it: {_export_line(options, found)}")
    files = {name: str(getattr(options, name)) for name in ("records", "systems")}
    path = [
        {"prune": str(step.intervention), "validation": step.validation_score}
        for step in found.path
    ]
    save_numbers(
        options.save,
        {
            "options": {**vars(options), **files, "save": str(options.save)},
            "task": facts_of(task)._asdict(),
            **dataclasses.asdict(found),
            "path": path,
        },
        console,
    )


def _table(found: CompositionSearch) -> Table:
    table = Table()
    level = f"{100 * found.comparison.level:g} %"
    for name in ("clipped", "validation", "test", f"{level} interval"):
        table.add_column(name)
    before = f"{found.test_before:.4f}", as_row(found.before_interval)
    after = f"{found.test_after:.4f}", as_row(found.after_interval)
    table.add_row("unpruned", f"{found.unpruned_score:.4f}", *before)
    for number, step in enumerate(found.path, 1):
        table.add_row(
            f"{'+ ' if number > 1 else ''}{step.intervention}",
            f"{step.validation_score:.4f}",
            *(after if number == len(found.path) else ()),
        )
    return table


def _export_line(options: Options, found: CompositionSearch) -> str:
    line = ["python", "-m", "experiments.real_model", "export", "--model"]
    line += [options.model]
    if options.revision:
        line += ["--revision", options.revision]
    if options.at_least_one:
        line += ["--at-least-one"]
    return shlex.join([*line, "--prune", *map(str, found.interventions), "--to", "NEW"])
