"""Checks of the starting point of flows and descents."""

from typing import Any

from icltheory._noted import check_count, check_values
from icltheory.regression._block_moments import Moments, check_dim
from icltheory.regression.blocks import LSA, LTB, EffectiveParameters
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

MODELS = (GDBeta, LSA, LTB, EffectiveParameters)


def read_start(problem: LinearPopulation, num_examples: Count, model: Any) -> Moments:
    """Returns the moments of the problem after checking model, M and tau."""
    if not isinstance(model, MODELS):
        names = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(f"model: expected one of {names}, got {type(model).__name__}")
    check_dim(problem, model.dim)
    check_count("num_examples", num_examples, 1)
    moments = Moments.of(problem, num_examples)
    check_values(
        "problem",
        moments.tau,
        lambda tau: tau > 0,
        "tau = tr(H Psi) + noise_var > 0",
    )
    return moments
