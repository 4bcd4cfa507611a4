"""SVD pruning of layered models.

A clipping rate becomes a rank by exact arithmetic, a matrix becomes its best
approximation of that rank, and a sweep scores a model at many rates, modules and layers
in one compiled program. Beside it: what pruning does to the norms of the theory, how
well conditioned the matrices are, the choice of layer and rate of Algorithm 1, and a
search for several prunings together.

Stability: stable.
"""

from icltheory.pruning.choice import (
    LayerChoice,
    RateChoice,
    Selection,
    choose_layers,
    choose_rate,
    corrected_selection,
)
from icltheory.pruning.interventions import Intervention, prune_model
from icltheory.pruning.matrices import (
    FrobeniusSplit,
    frobenius_split,
    prune,
    prune_rows,
)
from icltheory.pruning.methods import LowRank, Magnitude, Method, Whitened
from icltheory.pruning.modules import module_matrices
from icltheory.pruning.rates import Rank, kept_parameters, rank_for_rate
from icltheory.pruning.searches import Search, search
from icltheory.pruning.spectra import (
    MatrixSpectrum,
    by_layer,
    module_spectra,
    random_condition_number,
)
from icltheory.pruning.sweeps import Scored, sweep, sweep_grid
from icltheory.pruning.updates import (
    DepthTable,
    UpdateBound,
    UpdateSplit,
    depth_table,
    update_split,
    update_upper_bound,
)

__all__ = [
    "DepthTable",
    "FrobeniusSplit",
    "Intervention",
    "LayerChoice",
    "LowRank",
    "Magnitude",
    "MatrixSpectrum",
    "Method",
    "Rank",
    "RateChoice",
    "Scored",
    "Search",
    "Selection",
    "UpdateBound",
    "UpdateSplit",
    "Whitened",
    "by_layer",
    "choose_layers",
    "choose_rate",
    "corrected_selection",
    "depth_table",
    "frobenius_split",
    "kept_parameters",
    "module_matrices",
    "module_spectra",
    "prune_model",
    "prune",
    "prune_rows",
    "random_condition_number",
    "rank_for_rate",
    "search",
    "sweep",
    "sweep_grid",
    "update_split",
    "update_upper_bound",
]
