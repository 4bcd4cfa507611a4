"""Parses command lines: a preset or a stored run, and options that override fields."""

import dataclasses
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import jax

from experiments._frame import slurm
from experiments._frame.extend import extends
from experiments._frame.options import Flags, line_type
from experiments._frame.resize import resized
from experiments._frame.stored import experiment_of, read_config
from experiments._frame.tyro_line import read_line

Config = TypeVar("Config")
_HELP = ("-h", "--help")


@dataclasses.dataclass(frozen=True)
class Launch(Generic[Config]):
    """A parsed command line: the experiment, its config and its options.

    Attributes:
        name: The experiment.
        config: What to compute; it alone decides the numbers.
        preset: Name of the preset it began from.
        resume: Run folder to continue, if any.
        output: Folder under which a new run's folder is made.
        flags: The experiment's own switches.
        quiet: Whether to print only warnings, the final tables and the verdict.
        unmodified: Whether the config is that of a preset, for which the checks are
            made.
        extends: Whether a run is continued with more steps than it was begun with.
        words: The words of the command line.
    """

    name: str
    config: Config
    preset: str
    resume: Path | None
    output: Path
    flags: Any
    quiet: bool = False
    unmodified: bool = True
    extends: bool = False
    words: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """Returns the command that began the run, with its preset."""
        named = {"--preset", "--resume"} & {w.partition("=")[0] for w in self.words}
        preset = () if named else ("--preset", self.preset)
        line = ("python", "-m", f"experiments.{self.name}", *preset, *self.words)
        return shlex.join(line)

    def continuing(self, folder: Path) -> list[str]:
        """Returns the command that continues the run in a folder."""
        quiet = ["--quiet"] * self.quiet
        command = ["python", "-m", f"experiments.{self.name}", "--resume", str(folder)]
        return [*command, *self.flags.words(), *quiet]


def parse(
    presets: Mapping[str, Config],
    argv: list[str] | None = None,
    *,
    flags: Flags | None = None,
) -> Launch[Config]:
    """Parses the command line of an experiment.

    ``--preset`` names the sizes, and every field of the config is an option that
    overrides it. Without it the preset is ``gpu`` where there is a GPU and such a
    preset, else the first one. ``--resume RUN`` takes the config of a run instead;
    options that would change it are refused, but for more steps where these extend the
    run (:mod:`experiments._frame.extend`).

    With ``--slurm`` options (:mod:`experiments._frame.slurm`) it sends the rest of the
    line to the cluster and ends the program.

    Args:
        presets: The configs by name.
        argv: Words of the command line; those of the program unless given.
        flags: The experiment's own switches with their defaults. It runs in several
            processes if ``num_processes`` is one of them.

    Returns:
        The config, and where and how to run it.

    Raises:
        ValueError: if the preset is unknown, the run has no readable config, a resumed
            run was asked for another config, or several processes were asked of an
            experiment that runs in one.
        SystemExit: once a job is submitted or the help page is printed.
    """
    line = _Reader(presets, flags or Flags(), sys.argv[1:] if argv is None else argv)
    if set(_HELP) & set(line.argv):
        line.config(presets.get(line.preset or "", next(iter(presets.values()))))
    if not line.options.output.parts:
        raise ValueError("output: expected a folder, got an empty path")
    asked = slurm.request(line.options.slurm, line.argv)
    _check_processes(asked, line.flags)
    if asked is not None:
        line.check_overrides()
        module = slurm.module_run()
        print(*slurm.submit(asked, module, line.argv, line.options.output), sep="\n")
        raise SystemExit(0)
    line.flags.begin()
    return line.launch()


def _check_processes(asked: slurm.Request | None, flags: Flags) -> None:
    processes = slurm.tasks_of_srun() if asked is None else asked.nodes
    if processes > 1 and not hasattr(flags, "num_processes"):
        raise ValueError(
            f"slurm: expected one host and one task, got {processes}: this experiment "
            "runs in one process"
        )


class _Reader(Generic[Config]):
    """Parser of a command line; a preset or stored run gives the config's defaults."""

    def __init__(self, presets: Mapping[str, Config], flags: Flags, argv: list[str]):
        self.presets, self.argv = presets, argv
        self._flags = flags
        example = next(iter(presets.values()))
        self.name, self._about = experiment_of(example)
        kind = line_type(presets, flags)
        plain = [word for word in argv if word not in _HELP]
        known, _ = self._read(kind, kind(), plain, return_unknown_args=True)
        self.preset: str | None = known.preset
        self.options, self.flags = known.options, known.flags
        self.run: Path | None = self.options.resume

    def launch(self) -> Launch[Config]:
        """Returns the launch that the whole command line describes."""
        start = self.preset
        if start is None and self.run is None:
            start = _default_preset(self.presets)
        more = False
        if self.run is None:
            config = self.config(self._of_preset(start))
        else:
            stored = self._stored(self.run)
            begin = stored if start is None else self._of_preset(start)
            config = self.config(begin)
            more = extends(self.run, stored, config)
        return Launch(
            self.name,
            config,
            start or "stored",
            self.run,
            self.options.output,
            self.flags,
            self.options.quiet,
            config in self.presets.values(),
            more,
            tuple(self.argv),
        )

    def config(self, start: Config) -> Config:
        """Returns the config ``start`` with the options of the command line applied."""
        kind = line_type(self.presets, self._flags, type(start))
        default = kind(config=start)
        if self.run is None:
            default = kind(config=resized(start, self.argv))
        return self._read(kind, default, self.argv).config

    def check_overrides(self) -> None:
        """Raises if the overrides are invalid for every possible preset."""
        if self.run is not None:
            starts = [self._stored(self.run)]
        elif self.preset is not None:
            starts = [self._of_preset(self.preset)]
        else:
            starts = list(self.presets.values())
        complaints = []
        for start in starts:
            try:
                self.config(start)
                return
            except ValueError as error:
                complaints.append(error)
        raise complaints[0]

    def _of_preset(self, preset: str | None) -> Config:
        if preset not in self.presets:
            _refuse_preset(preset, self.presets)
        return self.presets[preset]

    def _stored(self, run: Path) -> Config:
        try:
            return read_config(run, next(iter(self.presets.values())))
        except ValueError as error:
            name = "resume"
            if self.options.resume is None:  # an option of the experiment's own
                names = [field.name for field in dataclasses.fields(self.flags)]
                name = next(n for n in names if getattr(self.flags, n) == run)
            raise ValueError(f"{name}: {error}") from error

    def _read(self, kind: Any, default: Any, argv: list[str], **options: Any) -> Any:
        return read_line(
            default, argv, kind, name=self.name, about=self._about, **options
        )


def _default_preset(presets: Mapping[str, Any]) -> str:
    # Reading the backend initialises it, which must follow joining other processes.
    if "gpu" in presets and jax.default_backend() == "gpu":
        return "gpu"
    return next(iter(presets))


def _refuse_preset(preset: str | None, presets: Mapping[str, Any]) -> NoReturn:
    raise ValueError(f"preset: expected one of {', '.join(presets)}, got {preset}")
