"""Commands on a user's own model: ``python -m experiments.real_model NAME``."""

from collections.abc import Callable
from typing import Any

from experiments.real_model.commands import cost, evaluate, export, search

# The first line of a module's docstring is its help text.
COMMANDS: dict[str, Callable[[list[str]], Any]] = {
    "evaluate": evaluate.main,
    "search": search.main,
    "export": export.main,
    "cost": cost.main,
}
