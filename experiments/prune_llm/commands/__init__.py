"""Commands on a user's own model and task: ``python -m experiments.prune_llm NAME``."""

from collections.abc import Callable
from typing import Any

from experiments.prune_llm.commands import evaluate, export, search

# The module of each command has a ``main`` and its help in the first line.
COMMANDS: dict[str, Callable[[list[str]], Any]] = {
    "evaluate": evaluate.main,
    "search": search.main,
    "export": export.main,
}
