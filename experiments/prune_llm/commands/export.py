"""Writes a pruned language model as a checkpoint, dense or in factors.

``python -m experiments.prune_llm export --model FOLDER --prune 26:mlp:0.9 --to NEW``
writes a folder that transformers and this library load; with ``--factorised`` the
clipped matrices are stored as two factors where that is smaller, and
``icltheory.bridge.load_checkpoint`` alone loads it. An existing folder is refused, and
the new one is there whole or not at all.
"""

import dataclasses
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.prune_llm.commands.options import Pruned, Switch, read_options
from icltheory.bridge import (
    LanguageModel,
    clip_modules,
    save_checkpoint,
    size_report,
)
from icltheory.bridge.export import take_factors


@dataclasses.dataclass(frozen=True)
class Options(Pruned):
    """Options of the command ``export``.

    Attributes:
        to: Folder to write; it must not exist.
        factorised: Whether clipped matrices are stored as two factors where that is
            smaller. Only this library reads such a folder.
    """

    to: Path | None = None
    factorised: Switch = False

    def check(self) -> None:
        """Raises for options that are invalid whatever the model is."""
        super().check()
        if self.to is None or not self.to.name:
            raise ValueError(
                f"to: expected a folder to write, got {self.to}; pass --to"
            )
        if not self.interventions:
            raise ValueError(
                "prune: expected something to clip, got none; pass --prune"
            )
        if self.to.exists():
            raise ValueError(f"to: expected a path that does not exist, got {self.to}")


def main(argv: list[str] | None = None) -> None:
    """Parses the command line, clips the model and writes it."""
    options = read_options(Options, argv, "export", __doc__)
    prunings, console = options.interventions, Console()
    model = options.load_model()
    clipped = clip_modules(model, prunings, at_least_one=options.at_least_one)
    pairs = [(one.layer, one.module) for one in prunings]
    assert options.to is not None
    folder = save_checkpoint(
        clipped, options.to, factorised=pairs if options.factorised else None
    )
    console.print(sizes(model, options))
    if model.arch.tied and not clipped.arch.tied:
        console.print("embeddings and head were one matrix, and are two now")
    config = json.loads((folder / "config.json").read_text())
    reader = "icltheory reads it, in factors"
    if not take_factors(config)[1]:
        reader = "transformers and icltheory read it"
    stored = sum(path.stat().st_size for path in folder.iterdir())
    console.print(
        f"{folder}: {stored:,} bytes, {reader}", highlight=False, soft_wrap=True
    )


def sizes(model: LanguageModel, options: Options) -> Table:
    """Builds the table of clipped matrices: ranks, and numbers dense and in factors."""
    table = Table()
    for name in ("clipped", "matrix", "shape", "rank", "numbers", "as two factors"):
        table.add_column(name, justify="left" if name == "clipped" else "right")
    for one in options.interventions:
        report = size_report(
            model,
            one.layer,
            one.module,
            one.rate,
            rank=one.rank,
            at_least_one=options.at_least_one,
        )
        for size in report.matrices:
            table.add_row(
                str(one),
                size.matrix,
                "{} x {}".format(*size.shape),
                f"{size.rank}",
                f"{size.dense:,}",
                f"{size.factors:,}",
            )
    return table
