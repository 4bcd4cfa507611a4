"""Exact theory of the linear transformer block, linear self-attention and GD-beta.

Zhang, Wu and Bartlett (2024): models with their matrices, the exact risk of each for
any Gaussian problem, optima, the gap between attention with and without an MLP, and the
landscape. ``problem`` is a ``LinearPopulation``; every risk counts the noise of
the query.
"""

from icltheory.regression.ltb.converters import (
    effective_to_lsa,
    effective_to_ltb,
    gd_beta_to_ltb,
    ltb_to_gd_beta,
    von_oswald_lsa,
)
from icltheory.regression.ltb.decomposition import (
    BlockExcess,
    GDBetaExcess,
    excess_terms,
    gd_beta_excess,
)
from icltheory.regression.ltb.effective import EffectiveParameters
from icltheory.regression.ltb.gap import (
    Gap,
    GapUpperBounds,
    approximation_gap,
    gap_upper_bounds,
)
from icltheory.regression.ltb.gap_limits import scalar_gap, small_mean_gap
from icltheory.regression.ltb.gd_beta import GDBeta
from icltheory.regression.ltb.landscape import (
    SpuriousMinimum,
    excess_profile,
    spurious_minimum,
)
from icltheory.regression.ltb.lsa_optimum import optimal_lsa
from icltheory.regression.ltb.models import LSA, LTB
from icltheory.regression.ltb.optimality import (
    OptimalityConditions,
    optimality_conditions,
)
from icltheory.regression.ltb.optimum import (
    GDBetaMinimizers,
    gd_beta_minimizers,
    minimal_risk,
    optimal_gd_beta,
)
from icltheory.regression.ltb.risks import curvature, risk, risk_gradient

__all__ = [
    "LSA",
    "LTB",
    "BlockExcess",
    "EffectiveParameters",
    "GDBeta",
    "GDBetaExcess",
    "GDBetaMinimizers",
    "Gap",
    "GapUpperBounds",
    "OptimalityConditions",
    "SpuriousMinimum",
    "approximation_gap",
    "curvature",
    "effective_to_lsa",
    "effective_to_ltb",
    "excess_profile",
    "excess_terms",
    "gap_upper_bounds",
    "gd_beta_excess",
    "gd_beta_minimizers",
    "gd_beta_to_ltb",
    "ltb_to_gd_beta",
    "minimal_risk",
    "optimal_gd_beta",
    "optimal_lsa",
    "risk",
    "risk_gradient",
    "scalar_gap",
    "small_mean_gap",
    "spurious_minimum",
    "optimality_conditions",
    "von_oswald_lsa",
]
