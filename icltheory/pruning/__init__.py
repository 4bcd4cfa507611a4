"""SVD pruning of layered models.

A clipping rate becomes a rank by exact arithmetic, a matrix becomes its best
approximation of that rank, and a sweep scores a model at many rates, modules and layers
in one compiled program. Beside it: what pruning does to the norms of the theory, how
well conditioned the matrices are, and the choice of layer and rate of Algorithm 1.

Stability: stable.
"""

from icltheory.pruning.choice import (
    LayerChoice,
    RateChoice,
    choose_layers,
    choose_rate,
)
from icltheory.pruning.clipping import FrobeniusSplit, clip, frobenius_split
from icltheory.pruning.composition import Composition, compose
from icltheory.pruning.depth import DepthTable, depth_table
from icltheory.pruning.examples import (
    UpdateBound,
    UpdateSplit,
    update_split,
    update_upper_bound,
)
from icltheory.pruning.interventions import Intervention, prune_modules
from icltheory.pruning.magnitude import magnitude_prune
from icltheory.pruning.modules import module_matrices, prune_module
from icltheory.pruning.neurons import prune_rows
from icltheory.pruning.rates import Rank, kept_parameters, rank_for_rate
from icltheory.pruning.selection import Selection, corrected_selection
from icltheory.pruning.spectra import (
    MatrixSpectrum,
    by_layer,
    module_spectra,
    random_condition_number,
)
from icltheory.pruning.sweeps import sweep, sweep_grid
from icltheory.pruning.whitening import whiten

__all__ = [
    "Composition",
    "DepthTable",
    "FrobeniusSplit",
    "Intervention",
    "LayerChoice",
    "MatrixSpectrum",
    "Rank",
    "RateChoice",
    "Selection",
    "UpdateBound",
    "UpdateSplit",
    "by_layer",
    "choose_layers",
    "choose_rate",
    "clip",
    "compose",
    "corrected_selection",
    "depth_table",
    "frobenius_split",
    "kept_parameters",
    "magnitude_prune",
    "module_matrices",
    "module_spectra",
    "prune_module",
    "prune_modules",
    "prune_rows",
    "random_condition_number",
    "rank_for_rate",
    "sweep",
    "sweep_grid",
    "update_split",
    "update_upper_bound",
    "whiten",
]
