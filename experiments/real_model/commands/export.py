"""Writes a pruned language model as a checkpoint, dense or in factors.

``python -m experiments.real_model export --model FOLDER --prune 26:mlp:0.9 --to NEW``
writes a folder that transformers and this library load; with ``--factorised`` the
clipped matrices are stored as two factors where that is smaller, and
``icltheory.bridge.load_checkpoint`` alone loads it. An existing folder is refused, and
the new one is written atomically.
"""

import dataclasses
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.real_model.commands.options import Pruned, Switch, read_options
from icltheory.bridge import LanguageModel, clip_modules, save_checkpoint, size_report
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
    prunings, model = options.interventions, options.load_model()
    clipped = clip_modules(model, prunings, at_least_one=options.at_least_one)
    pairs = [(one.layer, one.module) for one in prunings]
    assert options.to is not None
    folder = save_checkpoint(
        clipped, options.to, factorised=pairs if options.factorised else None
    )
    console = Console(soft_wrap=True, highlight=False)
    console.print(_sizes(model, options), soft_wrap=False)
    if model.arch.tied and not clipped.arch.tied:
        console.print("embeddings and head were one matrix, and are two now")
    in_factors = take_factors(json.loads((folder / "config.json").read_text()))[1]
    reader = "icltheory reads it, in factors"
    if not in_factors:
        reader = "transformers and icltheory read it"
    stored = sum(path.stat().st_size for path in folder.iterdir())
    console.print(f"{folder}: {stored:,} bytes, {reader}")


def _sizes(model: LanguageModel, options: Options) -> Table:
    table = Table()
    for name in ("clipped", "matrix", "shape", "rank", "numbers", "as two factors"):
        table.add_column(name, justify="left" if name == "clipped" else "right")
    for one in options.interventions:
        place, least = (one.layer, one.module, one.rate), options.at_least_one
        report = size_report(model, *place, rank=one.rank, at_least_one=least)
        for size in report.matrices:
            shape = "{} x {}".format(*size.shape)
            counts = f"{size.rank}", f"{size.dense:,}", f"{size.factors:,}"
            table.add_row(str(one), size.matrix, shape, *counts)
    return table
