"""Stored runs of experiments: their numbers, tables, pages, and the command line.

A run is a folder ``runs/NAME/STAMP`` with ``config.json`` and, once it has ended,
``result.json``. Nothing here needs the code of the experiment.

Stability: provisional.
"""

from icltheory.runs.experiments import experiment
from icltheory.runs.pages import write_index, write_tensorboard
from icltheory.runs.stored import Run, compare, find, load, summary
from icltheory.runs.tables import number, plain, to_columns, to_frame

__all__ = [
    "Run",
    "compare",
    "experiment",
    "find",
    "load",
    "number",
    "plain",
    "summary",
    "to_columns",
    "to_frame",
    "write_index",
    "write_tensorboard",
]
