"""The linear transformer block, linear self-attention and GD-beta, exactly.

Zhang, Wu and Bartlett (2024): models with their matrices, the exact risk of each for
any Gaussian problem, optima, the gap between attention with and without an MLP, and the
landscape. ``problem`` is a ``tasks.LinearRegression``; every risk counts the noise of
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
from icltheory.regression.ltb.gd_beta import GDBeta
from icltheory.regression.ltb.models import LSA, LTB
from icltheory.regression.ltb.optimum import (
    GDBetaMinimizers,
    gd_beta_minimizers,
    minimal_risk,
    optimal_gd_beta,
)
from icltheory.regression.ltb.risk import curvature, risk, risk_gradient

__all__ = [
    "LSA",
    "LTB",
    "BlockExcess",
    "EffectiveParameters",
    "GDBeta",
    "GDBetaExcess",
    "GDBetaMinimizers",
    "curvature",
    "effective_to_lsa",
    "effective_to_ltb",
    "excess_terms",
    "gd_beta_excess",
    "gd_beta_minimizers",
    "gd_beta_to_ltb",
    "ltb_to_gd_beta",
    "minimal_risk",
    "optimal_gd_beta",
    "risk",
    "risk_gradient",
    "von_oswald_lsa",
]
