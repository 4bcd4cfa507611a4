"""Where the package of experiments is: in a wheel inside icltheory, else beside it."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType


def make_importable() -> None:
    """Makes ``experiments`` importable, here and in the processes that are started."""
    here = Path(__file__).parents[1]
    for folder in map(str, (here / "_shipped", here.parent)):
        if (Path(folder) / "experiments" / "frame").is_dir():
            if folder not in sys.path:
                sys.path.insert(0, folder)
                found = filter(None, (folder, os.environ.get("PYTHONPATH")))
                os.environ["PYTHONPATH"] = os.pathsep.join(found)
            return
    raise ImportError("experiments: expected them beside icltheory, found none")


def experiment(name: str) -> ModuleType:
    """The module of an experiment, such as what reads the models of its runs.

    The folder of the package ``experiments`` becomes the first that Python searches. An
    unknown name is a ``ValueError``.

    Example:
        >>> experiment("garg_linear").PRESETS["cpu"].num_layers
        3
    """
    make_importable()
    full = f"experiments.{name}"
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:  # what the experiment needs is not installed
            raise
        raise ValueError(f"name: expected an experiment, got {name!r}") from None
