"""Reads the splits of a task from a folder of files or from the hub."""

import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from icltheory.bridge.tasks.declare import TaskSpec
from icltheory.bridge.tasks.rows import (
    FORMATS,
    SourceTable,
    read_table,
    row_of,
)

__all__ = ["hub_source", "local_source"]

# File names of each split; the first that exists is used.
_NAMES = {
    "train": ("train",),
    "validation": ("validation", "val", "dev"),
    "test": ("test",),
}


def local_source(spec: TaskSpec, path: Any) -> Callable[[str], SourceTable]:
    """Returns a reader for the splits in a folder.

    A split is the file that the declaration names for it, or the one called ``train``,
    ``validation`` (``val``, ``dev``) or ``test``, or else the only one whose name
    begins so.

    Args:
        spec: The declaration.
        path: The folder, or a single file that serves as the training rows.

    Returns:
        A function from the name of a split to its rows.
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: no such folder of files for {spec.name}")
    keys = tuple(dict.fromkeys(column for column, _ in spec.labels))
    keys = keys or tuple(_columns(spec))

    def read(split: str) -> SourceTable:
        file, start, stop = _find(spec, folder, split)
        table = read_table(file, keys=keys, headerless=spec.headerless)
        return table._replace(rows=table.rows[start:stop])

    return read


def _columns(spec: TaskSpec) -> Iterator[str]:
    """Returns the columns that the templates of the fields name."""
    for templates in spec.fields.values():
        for template in (templates,) if isinstance(templates, str) else templates:
            for _, column, *_ in string.Formatter().parse(template):
                if column:
                    yield column


def _find(spec: TaskSpec, folder: Path, split: str) -> tuple[Path, int, int | None]:
    """Returns the file of a split and which of its rows belong to it."""
    if folder.is_file():
        if split == "train":
            return folder, 0, None
        raise FileNotFoundError(
            f"{folder}: expected a folder with a {split} file for {spec.name}"
        )
    named = [file for file in spec.files if file.split == split]
    for file in named:
        for found in _one_of(folder, [file.pattern], spec.name, split):
            return found, file.start, file.stop
    for name in _NAMES[split]:
        exact = [name + ending for ending in FORMATS]
        for found in _one_of(folder, exact, spec.name, split):
            return found, 0, None
    begins = [f"{name}*{ending}" for name in _NAMES[split] for ending in FORMATS]
    for found in _one_of(folder, begins, spec.name, split):
        return found, 0, None
    expected = [file.pattern for file in named]
    expected += [f"{name}.*" for name in _NAMES[split]]
    present = sorted(file.name for file in folder.iterdir())
    raise FileNotFoundError(
        f"{folder}: expected a {split} file for {spec.name} "
        f"({', '.join(expected)}), found {', '.join(present) or 'nothing'}"
    )


def _one_of(folder: Path, patterns: list[str], name: str, split: str) -> list[Path]:
    """Returns the file that exists, or None; raises if several exist."""
    found = sorted({file for pattern in patterns for file in folder.glob(pattern)})
    if len(found) > 1:
        raise ValueError(
            f"{folder}: expected one {split} file for {name}, "
            f"got {', '.join(file.name for file in found)}"
        )
    return found


def hub_source(spec: TaskSpec) -> Callable[[str], SourceTable]:
    """Returns a reader for the splits of a data set on the hub.

    Args:
        spec: The declaration.

    Returns:
        A function from the name of a split to its rows.
    """
    if not spec.hub:
        raise ValueError(
            f"path: expected a folder of files for {spec.name}, which is not on the hub"
        )
    try:
        import datasets  # pyrefly: ignore[missing-import]
    except ImportError as error:
        raise ImportError(
            f"reading {spec.name} from the hub needs the package datasets: "
            "pip install icltheory[llm], or give the path of local files"
        ) from error

    def read(split: str) -> SourceTable:
        try:
            rows = datasets.load_dataset(*spec.hub, split=split)
        except Exception as error:  # any error means that it cannot be had
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise FileNotFoundError(
                f"{'/'.join(spec.hub)}: expected a data set on the hub or in its "
                f"cache, got {said}; or give the path of local files"
            ) from error
        return SourceTable(
            f"{'/'.join(spec.hub)}[{split}]",
            tuple(row_of(row, number) for number, row in enumerate(rows, start=1)),
        )

    return read
