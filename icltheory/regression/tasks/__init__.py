"""Families of in-context tasks: distributions over functions, sampled as prompts."""

from icltheory.regression.tasks.decision_tree import DecisionTree
from icltheory.regression.tasks.gaussian import (
    LinearClassification,
    QuadraticRegression,
)
from icltheory.regression.tasks.linear import LinearRegression
from icltheory.regression.tasks.pools import PromptPool, TaskPool
from icltheory.regression.tasks.relu_network import ReluNetwork
from icltheory.regression.tasks.sparse import SparseLinearRegression

__all__ = [
    "DecisionTree",
    "LinearClassification",
    "LinearRegression",
    "PromptPool",
    "QuadraticRegression",
    "ReluNetwork",
    "SparseLinearRegression",
    "TaskPool",
]
