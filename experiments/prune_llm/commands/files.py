"""Writes files atomically."""

import os
from pathlib import Path


def check_file(name: str, path: Path | None) -> None:
    """Raises if an option names a folder, before hours are spent on its contents."""
    if path is not None and path.is_dir():
        raise ValueError(f"{name}: expected a file, got the folder {path}")


def write_whole(path: Path, text: str) -> None:
    """Writes a file atomically, and creates its folder if needed."""
    if path.is_dir():
        raise ValueError(f"{path}: expected a file, got a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".writing_{path.name}")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)
