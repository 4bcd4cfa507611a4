"""Searches for several modules to clip together, and tests the choice once.

``python -m experiments.prune_llm search --model FOLDER --task NAME --budget 40`` tries
every layer, module and rate, keeps the best on validation, tries all others on top of
it, and so on until nothing improves or the budget of evaluations is spent; with
``--beam`` the best few are kept. The unpruned and the chosen model then answer the test
set once. ``--records`` keeps all answers, so that a search that was killed goes on.
"""

import dataclasses
import itertools
import json
import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments._frame.fields import check_at_least
from experiments._frame.program import continue_with
from experiments._frame.progress import Activity, Display
from experiments.prune_llm.commands.files import check_file, write_whole
from experiments.prune_llm.commands.options import (
    Prunings,
    TaskOptions,
    as_row,
    described,
    read_options,
    read_prunings,
)
from icltheory.bridge import CompositionSearch, search_compositions
from icltheory.bridge.answer_cache import facts_of
from icltheory.bridge.spectra import SingularSystems
from icltheory.pruning import Intervention
from icltheory.strict_json import plain


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
        places = itertools.product(layers, self.modules, strengths)
        grid = [
            Intervention(layer % num_layers, module, **strength)
            for layer, module, strength in places
        ]
        return [*grid, *read_prunings("candidates", self.candidates)]


def main(argv: list[str] | None = None) -> None:
    """Parses the command line, searches and prints the results."""
    options = read_options(Options, argv, "search", __doc__)
    task = options.load_task()
    model = options.load_model()
    candidates = options.every_candidate(model.num_layers)
    console = Console()
    console.print(described(options, model, task), highlight=False, soft_wrap=True)
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
    console.print(path_table(found))
    console.print(f"{found.evaluations} evaluations; the search ended: {found.stopped}")
    console.print(f"test: {found}", soft_wrap=True)
    if found.path:
        console.print(f"to keep it: {export_line(options, found)}", soft_wrap=True)
    if options.save is not None:
        numbers = as_numbers(options, facts_of(task)._asdict(), found)
        write_whole(options.save, json.dumps(plain(numbers), indent=1) + "\n")
        console.print(f"written to {options.save}", soft_wrap=True)


def path_table(found: CompositionSearch) -> Table:
    """Builds the table of steps with validation accuracy, and the test accuracies."""
    table = Table()
    level = f"{100 * found.comparison.level:g} %"
    for name in ("clipped", "validation", "test", f"{level} interval"):
        table.add_column(name)
    table.add_row(
        "unpruned",
        f"{found.unpruned_score:.4f}",
        f"{found.test_before:.4f}",
        as_row(found.before_interval),
    )
    for number, step in enumerate(found.path, 1):
        last = number == len(found.path)
        table.add_row(
            f"{'+ ' if number > 1 else ''}{step.intervention}",
            f"{step.validation_score:.4f}",
            f"{found.test_after:.4f}" if last else "",
            as_row(found.after_interval) if last else "",
        )
    return table


def export_line(options: Options, found: CompositionSearch) -> str:
    """Returns the command that exports the chosen model."""
    line = ["python", "-m", "experiments.prune_llm", "export", "--model"]
    line += [options.model]
    if options.revision:
        line += ["--revision", options.revision]
    if options.at_least_one:
        line += ["--at-least-one"]
    return shlex.join([*line, "--prune", *map(str, found.interventions), "--to", "NEW"])


def as_numbers(
    options: Options, task: dict[str, Any], found: CompositionSearch
) -> dict[str, Any]:
    """Returns the contents of the file named by ``--save``."""
    names = ("records", "systems", "save")
    files = {name: str(getattr(options, name)) for name in names}
    path = [
        {"prune": str(step.intervention), "validation": step.validation_score}
        for step in found.path
    ]
    return {
        "options": dataclasses.asdict(options) | files,
        "task": task,
        **dataclasses.asdict(found),
        "path": path,
    }
