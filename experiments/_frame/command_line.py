"""Command lines: a preset or a stored run, then overrides by tyro."""

import argparse
import contextlib
import dataclasses
import io
import itertools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import jax
import tyro

from experiments._frame import slurm
from experiments._frame.resize import resized

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Launch(Generic[Config]):
    """What a command line asked for.

    Attributes:
        name: The experiment.
        config: What to compute; it alone decides the numbers.
        preset: Name of the preset it began from.
        resume: Run folder to continue, if any.
        output: Folder under which a new run's folder is made.
        flags: The experiment's own switches.
    """

    name: str
    config: Config
    preset: str
    resume: Path | None
    output: Path
    flags: argparse.Namespace


def parse(
    presets: Mapping[str, Config],
    argv: list[str] | None = None,
    *,
    add_flags: Callable[[argparse.ArgumentParser], None] | None = None,
    on_flags: Callable[[argparse.Namespace], None] | None = None,
) -> Launch[Config]:
    """Reads the command line of an experiment.

    ``--preset`` names the sizes, and every field of the config is an option that
    overrides it. Without it the preset is ``gpu`` where there is a GPU and such a
    preset, else the first one. ``--resume RUN`` takes the config of a run instead;
    options that would change it are refused. The experiment's own switches are declared
    by ``add_flags`` and handed to ``on_flags`` before anything else, so that processes
    can join.

    With ``--slurm`` options (:mod:`experiments._frame.slurm`) it sends the rest of the
    line to the cluster and ends the program. An experiment runs in several processes if
    its switches have ``--num-processes``.

    Raises:
        ValueError: if the preset is unknown, the run has no readable config, a resumed
            run was asked for another config, or several processes were asked of an
            experiment that runs in one.
        SystemExit: once a job is submitted.
    """
    name, description = _experiment_of(next(iter(presets.values())))
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--preset", metavar=f"{{{','.join(presets)}}}")
    own.add_argument("--resume", type=Path)
    own.add_argument("--output", type=Path, default=Path("runs"))
    if add_flags is not None:
        add_flags(own)
    slurm.add_flags(own)
    argv = sys.argv[1:] if argv is None else argv
    flags, rest = own.parse_known_args(argv)
    if not flags.output.parts:
        raise ValueError("output: expected a folder, got an empty path")

    asked = slurm.request(flags)
    processes = slurm.tasks_of_srun() if asked is None else asked.nodes
    if processes > 1 and not hasattr(flags, "num_processes"):
        raise ValueError(
            f"slurm: expected one host and one task, got {processes}: this experiment "
            "runs in one process"
        )
    if asked is not None:
        usage = f"{description}\n\nAlso: {own.format_usage()}"
        _check_overrides(presets, flags, rest, usage)
        module = slurm.module_run()
        print(*slurm.submit(asked, module, argv, flags.output), sep="\n")
        raise SystemExit(0)
    if on_flags is not None:
        on_flags(flags)
    preset = flags.preset
    if preset is not None and preset not in presets:
        _refuse_preset(preset, presets)
    if flags.resume is not None:
        stored = _resumed(flags.resume, presets)
        start = stored if preset is None else presets[preset]
        preset = preset or "stored"
    else:
        preset = preset or _default_preset(presets)
        stored = start = presets[preset]
    config = _overridden(start, rest, f"{description}\n\nAlso: {own.format_usage()}")
    if flags.resume is not None and config != stored:
        changed = _differences(stored, config)
        why = "; the schedule depends on it: begin a new run" * ("steps" in changed)
        raise ValueError(
            f"resume: expected the config of {flags.resume}, got another {changed}{why}"
        )
    return Launch(name, config, preset, flags.resume, flags.output, flags)


def _experiment_of(config: Any) -> tuple[str, str]:
    """Name and first line of documentation of the package that defines a config."""
    package = type(config).__module__.rpartition(".")[0]
    text = getattr(sys.modules.get(package), "__doc__", None) or ""
    return package.rpartition(".")[2], text.partition("\n")[0]


def _default_preset(presets: Mapping[str, Any]) -> str:
    # Asking for the backend starts it, which must follow joining other processes.
    if "gpu" in presets and jax.default_backend() == "gpu":
        return "gpu"
    return next(iter(presets))


def _resumed(run: Path, presets: Mapping[str, Config]) -> Config:
    try:
        return read_config(run, next(iter(presets.values())))
    except ValueError as error:
        raise ValueError(f"resume: {error}") from error


def _refuse_preset(preset: str, presets: Mapping[str, Any]) -> NoReturn:
    raise ValueError(f"preset: expected one of {', '.join(presets)}, got {preset}")


def _check_overrides(
    presets: Mapping[str, Config],
    flags: argparse.Namespace,
    rest: list[str],
    description: str,
) -> None:
    """Refuses at once what no preset that the job may choose would take."""
    if flags.resume is not None:
        starts = [_resumed(flags.resume, presets)]
    elif flags.preset is not None:
        if flags.preset not in presets:
            _refuse_preset(flags.preset, presets)
        starts = [presets[flags.preset]]
    else:
        starts = list(presets.values())
    complaints = []
    for start in starts:
        try:
            _overridden(start, rest, description)
            return
        except ValueError as error:
            complaints.append(error)
    raise complaints[0]


def _overridden(start: Config, args: list[str], description: str) -> Config:
    """Lets tyro read the options; what it would frame in a box becomes one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                type(start),
                default=resized(start, args),
                args=args,
                description=description,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
    lines = [line.strip("│ \n") for line in complaint.getvalue().splitlines()[1:]]
    body = itertools.takewhile(lambda line: not line.startswith("─"), lines)
    message = " ".join(body).removeprefix("Error parsing ")
    raise ValueError(message)


def read_config(run: Path, example: Config) -> Config:
    """The config that a run folder holds; ``example`` is one of its experiment.

    A field that came after the run was begun has its default, and stderr says so.
    """
    path, added = run / "config.json", {}
    try:
        stored = json.loads(path.read_text())
        _check_experiment(stored, example)
        config = _build(type(example), stored["config"], added)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected a run folder with a readable config.json, got {run} "
            f"({type(error).__name__}: {error})"
        ) from error
    if added:
        defaults = ", ".join(f"{name} = {value}" for name, value in added.items())
        print(f"warning: {path} lacks what came later: {defaults}", file=sys.stderr)
    return config


def _check_experiment(stored: dict[str, Any], example: Any) -> None:
    """Raises if a run is of another experiment than a config's package."""
    own, found = _experiment_of(example)[0], stored.get("experiment")
    if found not in (None, own):
        raise ValueError(f"it is a run of {found}, not of {own}")


def _build(kind: Any, values: Any, added: dict[str, Any], at: str = "") -> Any:
    """Rebuilds nested frozen dataclasses from what JSON kept of them.

    Fields that it does not have get their defaults, which ``added`` collects.
    """
    if not dataclasses.is_dataclass(kind):
        return tuple(values) if isinstance(values, list) else values
    fields = {field.name: field for field in dataclasses.fields(kind)}
    gone = sorted(set(values) - set(fields))
    if gone:
        raise ValueError(f"fields that are not there: {_names(at, gone)}")
    bare = [n for n in fields if n not in values and not _has_default(fields[n])]
    if bare:
        raise ValueError(f"no value, and no default, of {_names(at, bare)}")
    found = kind(
        **{
            name: _build(fields[name].type, value, added, f"{at}{name}.")
            for name, value in values.items()
        }
    )
    new = [name for name in fields if name not in values]
    added |= {f"{at}{name}": getattr(found, name) for name in new}
    return found


def _has_default(field: dataclasses.Field) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _names(at: str, names: list[str]) -> str:
    return ", ".join(f"{at}{name}" for name in names)


def _differences(stored: Any, asked: Any) -> str:
    stored, asked = dataclasses.asdict(stored), dataclasses.asdict(asked)
    changed = [name for name in stored if stored[name] != asked[name]]
    return "; ".join(f"{n}={asked[n]} (stored {stored[n]})" for n in changed)
