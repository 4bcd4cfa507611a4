"""Options that every experiment has, and switches of single experiments."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments._frame.slurm import Request


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of every experiment that do not affect its results.

    Attributes:
        resume: Run folder to continue with its own config. Together with more --steps
            it extends the run, where nothing depends on the number of all steps.
        output: Folder under which a new run makes its own, NAME/STAMP.
        quiet: Print only warnings, the final tables and the verdict.
        slurm: Sends the rest of the command line to a Slurm cluster.
    """

    resume: Path | None = None
    output: Path = Path("runs")
    quiet: bool = False
    slurm: Request = Request()


@dataclasses.dataclass(frozen=True)
class Flags:
    """Base class of an experiment's own switches, the fields of a subclass."""

    def begin(self) -> None:
        """Called before the devices are first used."""

    def words(self) -> list[str]:
        """Returns the switches that differ from their defaults, as words."""
        words = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                words.append(f"--{field.name.replace('_', '-')}")
                words += [] if value is True else [str(value)]
        return words


def line_type(presets: Any, flags: Flags, config: type | None = None) -> type:
    """Returns the dataclass of a whole command line, or of the part before the config.

    Args:
        presets: Names of the presets.
        flags: The experiment's switches.
        config: Class of the config.
    """
    default = "gpu where there is a GPU, else " * ("gpu" in presets) + next(
        iter(presets)
    )
    preset = tyro.conf.arg(
        metavar=f"{{{','.join(presets)}}}",
        help="Sizes to begin with; every option below overrides one of their fields.",
        help_behavior_hint=f"(default: {default})",
    )
    bare = tyro.conf.arg(name="")
    single = tyro.conf.FlagCreatePairsOff
    switches: Any = type(flags)
    fields: list[Any] = [
        ("preset", Annotated[str | None, preset], None),
        ("options", Annotated[Options, bare, single], Options()),
        ("flags", Annotated[switches, bare, single], flags),
    ]
    if config is not None:
        fields.append(("config", Annotated[config, bare], None))
    return dataclasses.make_dataclass("Line", fields, frozen=True)
