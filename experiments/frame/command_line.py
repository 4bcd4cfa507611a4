"""Command lines: a preset or a stored run, and options that override its fields."""

import contextlib
import dataclasses
import difflib
import io
import itertools
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Generic, TypeVar, get_args

import jax
import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec
from tyro.constructors import PrimitiveTypeInfo as Kind

from experiments import words_of
from experiments.frame import config as configs
from experiments.frame import slurm
from experiments.frame.slurm import Request

Config = TypeVar("Config")
_REGISTRY = ConstructorRegistry()


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of every experiment that do not affect its results."""

    # Run folder to continue with its own config. Together with more --steps it extends
    # the run, where nothing depends on the number of all steps.
    resume: Path | None = None
    # Folder under which a new run makes its own, NAME/STAMP.
    output: Path = Path("runs")
    # Print only warnings, the final tables and the verdict.
    quiet: bool = False
    # Runs of several values of one option, such as num_layers=1,2,4,8: one after the
    # other, or as one Slurm array.
    sweep: str = ""
    # Sends the rest of the command line to a Slurm cluster.
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
            if (value := getattr(self, field.name)) != field.default:
                words.append(f"--{field.name.replace('_', '-')}")
                words += [] if value is True else [str(value)]
        return words


@dataclasses.dataclass(frozen=True)
class Processes(Flags):
    """Switches of an experiment that runs on several devices and hosts."""

    # Devices over which a batch is split; all of them unless given.
    devices: int | None = None
    coordinator: str | None = None  # HOST:PORT of the first process.
    num_processes: int | None = None  # How many processes run this experiment.
    process_id: int | None = None  # Number of this process, from 0.

    def begin(self) -> None:
        """Joins this process to the others if the options or ``srun`` name several."""
        from icltheory import training

        told = (self.coordinator, self.num_processes, self.process_id)
        # Of a sweep, every line is read in the same process.
        if self.num_processes == 1 or jax.distributed.is_initialized():
            return
        if told != (None, None, None):
            training.initialize_distributed(*told)
        elif slurm.tasks_of_srun() > 1:
            training.initialize_distributed()


@dataclasses.dataclass(frozen=True)
class Launch(Generic[Config]):
    """A parsed command line: the experiment, its config and its options."""

    name: str  # the experiment
    config: Config  # what to compute; it alone decides the numbers
    preset: str  # the preset it began from
    options: Options
    flags: Any  # the experiment's own switches
    unmodified: bool = True  # the config is that of a preset, for which checks are made
    extends: bool = False  # a run is continued with more steps
    words: tuple[str, ...] = ()  # of the command line
    presets: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def command(self) -> str:
        """The command that began the run, with its preset."""
        named = {"--preset", "--resume"} & {w.partition("=")[0] for w in self.words}
        return self.line(*() if named else ("--preset", self.preset), *self.words)

    def continuing(self, folder: Path) -> str:
        """Returns the command that continues the run in a folder."""
        quiet = ["--quiet"] * self.options.quiet
        return self.line("--resume", str(folder), *self.flags.words(), *quiet)

    def line(self, *words: str) -> str:
        """The command of the same experiment with these words."""
        return shlex.join((*words_of(self.name), *words))


def swept(argv: Sequence[str]) -> list[list[str]]:
    """The command lines of a sweep, one for each value; a single one without it.

    Example:
        >>> swept(["--sweep", "num_layers=1,2", "--quiet"])
        [['--quiet', '--num_layers', '1'], ['--quiet', '--num_layers', '2']]
    """
    rest, given = list(argv), None
    for place, word in enumerate(rest):
        if word == "--sweep" or word.startswith("--sweep="):
            inside = "=" in word
            given = word.partition("=")[2] if inside else "".join(rest[place + 1 :][:1])
            del rest[place : place + 1 + (not inside)]
            break
    if given is None:
        return [rest]
    again = [word for word in rest if word.partition("=")[0] == "--sweep"]
    configs.expect(not again, "sweep", "one option to vary", f"{len(again) + 1}")
    name, _, values = given.partition("=")
    fine = bool(name) and all(values.split(","))
    configs.expect(fine, "sweep", "OPTION=VALUE,VALUE,...", given or "none")
    return [[*rest, f"--{name}", value] for value in values.split(",")]


def parse(
    presets: Mapping[str, Config],
    argv: list[str] | None = None,
    *,
    flags: Flags | None = None,
    others: Sequence[list[str]] = (),
) -> Launch[Config]:
    """Parses the command line of an experiment; that of the program unless given.

    ``flags`` are the experiment's own switches with their defaults; it runs in several
    processes if ``num_processes`` is one of them. ``--slurm`` options send the rest of
    the line to the cluster, with ``others`` as one array, and end the program.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    flags, first = flags or Flags(), next(iter(presets.values()))
    name, about = configs.experiment_of(first)
    plain = [word for word in argv if word not in ("-h", "--help")]
    line = _line_type(presets, flags)()
    known, _ = read_line(line, plain, name=name, about=about, return_unknown_args=True)
    options, preset = known.options, known.preset

    def config_of(start: Any) -> Config:
        default = start if options.resume else configs.resized(start, argv)
        line = _line_type(presets, flags, type(start))(config=default)
        return read_line(line, argv, name=name, about=about).config

    if len(plain) < len(argv):
        config_of(presets.get(preset or "", first))  # prints the help page and exits
    configs.expect(options.output.parts, "output", "a folder", "an empty path")
    job = slurm.request(options.slurm, argv)
    slurm.check_processes(job, hasattr(known.flags, "num_processes"))
    if job is None:
        known.flags.begin()
    stored, run = None, options.resume
    if run is not None:
        try:
            stored = configs.read_config(run, first)
        except ValueError as error:
            raise ValueError(f"resume: {error}") from error
    elif preset is None:
        # Reading the backend initialises it, which must follow joining other processes.
        on_gpu = "gpu" in presets and jax.default_backend() == "gpu"
        preset = "gpu" if on_gpu else next(iter(presets))
    starts = {**presets, None: stored}
    configs.expect(preset in starts, "preset", f"one of {', '.join(presets)}", preset)
    config = config_of(starts[preset])
    more = stored is not None and configs.extends(run, stored, config)
    if job is not None:
        slurm.submit(job, name, [argv, *others], options.output)
        raise SystemExit(0)
    unmodified, began = config in presets.values(), preset or "stored"
    rest = (options, known.flags, unmodified, more, tuple(argv), presets)
    return Launch(name, config, began, *rest)


def _line_type(presets: Any, flags: Flags, config: type | None = None) -> type:
    """The dataclass of a whole command line, or of the part before the config."""
    default = "gpu where there is a GPU, else " * ("gpu" in presets)
    preset = tyro.conf.arg(
        metavar=f"{{{','.join(presets)}}}",
        help="Sizes to begin with; every option below overrides one of their fields.",
        help_behavior_hint=f"(default: {default}{next(iter(presets))})",
    )
    bare, single = tyro.conf.arg(name=""), tyro.conf.FlagCreatePairsOff
    switches: Any = type(flags)
    fields: list[Any] = [
        ("preset", Annotated[str | None, preset], None),
        ("options", Annotated[Options, bare, single], Options()),
        ("flags", Annotated[switches, bare, single], flags),
    ]
    if config is not None:
        fields.append(("config", Annotated[config, bare], None))
    return dataclasses.make_dataclass("Line", fields, frozen=True)


@_REGISTRY.primitive_rule
def _optional(info: Kind) -> PrimitiveConstructorSpec | None:
    """Makes the help page show an option of type ``X | None`` as type X."""
    kinds = [kind for kind in get_args(info.type) if kind is not NoneType]
    if NoneType not in get_args(info.type) or len(kinds) != 1:
        return None
    inner = ConstructorRegistry.get_primitive_spec(Kind.make(kinds[0], info.markers))
    if not isinstance(inner, PrimitiveConstructorSpec):
        return None
    read, write, fits = (
        inner.instance_from_str,
        inner.str_from_instance,
        inner.is_instance,
    )
    return dataclasses.replace(
        inner,
        instance_from_str=lambda words: None if words == ["None"] else read(words),
        str_from_instance=lambda value: ["None"] if value is None else write(value),
        is_instance=lambda value: value is None or fits(value),
    )


def read_line(
    default: Any, argv: Sequence[str] | None, *, name: str, about: str, **options: Any
) -> Any:
    """Parses words like the dataclass ``default`` by tyro, with one-line errors.

    ``name`` and ``about`` are the module below ``experiments`` and what it does, for
    the help page; further options are those of ``tyro.cli``, whose result is returned.
    """
    prog, complaint = " ".join(words_of(name)), io.StringIO()
    options |= {"prog": prog, "description": about, "registry": _REGISTRY}
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(type(default), default=default, args=argv, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
    raise ValueError(_one_line(complaint.getvalue()))


def _one_line(complaint: str) -> str:
    """Shortens tyro's error message to one line with the closest valid option."""
    lines = [line.strip("│| \n") for line in complaint.splitlines()[1:]]
    # Rules stand below the message, and in ASCII also above it.
    parts = itertools.groupby(lines, lambda line: set(line) <= set("╰─╯-"))
    message = next(" ".join(part) for is_rule, part in parts if not is_rule)
    message = message.removeprefix("Error parsing ")
    if unknown := re.match(r"Unrecognized options: (\S+?),? ?(?=$| )", message):
        option = unknown[1].partition("=")[0]
        names = re.findall(r"(--[\w.-]+)", complaint.partition("Perhaps you meant:")[2])
        nearest = difflib.get_close_matches(option, names, 1)
        hint = f"; did you mean {nearest[0]}?" if nearest else " (see --help)"
        message = f"{option}: unknown option{hint}"
    if missing := re.match(r"Missing value for argument '(--[\w.-]+)", message):
        message = f"{missing[1]}: expected a value, got none"
    number = r": expected a number, got \1"
    return re.sub(r": (?:invalid|could not convert) .*: '?(.*?)'?$", number, message)
