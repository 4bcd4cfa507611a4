"""The best member of a family on a population, with what certifies it."""

import functools
from typing import Any

import equinox as eqx

from icltheory._checks import check_positive_int
from icltheory._core import Record
from icltheory._typing import PRNGKey, Scalar
from icltheory.regression import ltb
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import Steps

__all__ = ["Optimum", "optimum"]


class Optimum(Record):
    """The best member of a family.

    Args:
        model: The member.
        risk: Its risk, with the query's noise.
        certificate: Why it is the best: a theorem, or how it was searched for.
    """

    model: Any
    risk: Scalar
    certificate: str = eqx.field(static=True)
