"""Writes files atomically."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Writes a file atomically, and creates its folder if needed."""
    if path.is_dir():
        raise ValueError(f"{path}: expected a file, got a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".writing_{path.name}")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)
