"""Puts the experiments into the wheel, without their stored results."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Experiments(BuildHookInterface):
    """Maps ``experiments`` to ``icltheory/_shipped/experiments``.

    Under its own name it would hide a folder ``experiments`` of a user.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the files, unless the clone itself is installed."""
        if version == "editable":
            return
        root = Path(self.root)
        for path in sorted((root / "experiments").rglob("*")):
            inside = path.relative_to(root)
            left_out = {"results", "__pycache__", "runs"} & set(inside.parts)
            if path.is_file() and not left_out:
                build_data["force_include"][str(path)] = f"icltheory/_shipped/{inside}"
