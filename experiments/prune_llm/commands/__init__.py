"""Commands on a user's own model and task: ``python -m experiments.prune_llm NAME``."""

from collections.abc import Callable
from typing import Any

from experiments.prune_llm.commands import evaluate, export, search

# Each command's module has a ``main``, and its first docstring line is the help text.
COMMANDS: dict[str, Callable[[list[str]], Any]] = {
    "evaluate": evaluate.main,
    "search": search.main,
    "export": export.main,
}
