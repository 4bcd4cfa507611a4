"""Checks of the starting point of flows and descents."""

from typing import Any

from icltheory.regression import ltb
from icltheory.regression.ltb._moments import Moments, check_dim, check_tau
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

MODELS = (ltb.GDBeta, ltb.LSA, ltb.LTB, ltb.EffectiveParameters)


def read_start(problem: LinearPopulation, num_examples: Count, model: Any) -> Moments:
    """Returns the moments of the problem after checking model, M and tau."""
    if not isinstance(model, MODELS):
        names = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(f"model: expected one of {names}, got {type(model).__name__}")
    check_dim(problem, model.dim)
    moments = Moments.of(problem, num_examples)
    check_tau(moments.tau)
    return moments
