"""The best linear step, until its callers move."""

from typing import Any, NamedTuple

from icltheory._typing import Array
from icltheory.regression._steps import best_matrix

__all__: list[str] = []


class _Best(NamedTuple):
    Gamma: Array
    risk: Array


def linear_attention_optimum(task: Any, num_examples: Any) -> _Best:
    """Gamma and the risk of the best linear step."""
    return _Best(*best_matrix(task, num_examples))
