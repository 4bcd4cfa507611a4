"""Errors of files that name the file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


def refuse_pointer(path: Path) -> None:
    """Raises if a file is the text that Git LFS leaves where a file was not fetched."""
    with path.open("rb") as file:
        if file.read(40).startswith(b"version https://git-lfs"):
            raise ValueError(
                f"{path}: expected the file itself, got a Git LFS pointer to it; "
                "download it with `git lfs pull`"
            )


@contextlib.contextmanager
def named_file(path: Path) -> Iterator[None]:
    """Names the file in an error of the system that names none, as of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        said = error.strerror or str(error)
        raise OSError(error.errno, said, str(path)) from None
