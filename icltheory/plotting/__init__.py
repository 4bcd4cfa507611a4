"""Figures of the experiments; matplotlib is imported when one is drawn, jax never.

A function takes numbers that are already computed and returns a matplotlib figure.
"""

from icltheory.plotting.bounds import (
    SamplePanel,
    bounds_against_samples,
    bounds_by_learner,
)
from icltheory.plotting.conditions import (
    ConditionCurve,
    condition_numbers_along_depth,
)
from icltheory.plotting.cot import (
    LengthPanel,
    LengthSeries,
    NeedPanel,
    attention_along_training,
    errors_against_length,
    lengths_that_suffice,
)
from icltheory.plotting.diversity import (
    DiversityPanel,
    DiversitySeries,
    curves_against_diversity,
)
from icltheory.plotting.flow import (
    FlowPanel,
    FlowStarts,
    descents_beside_flow,
    fates_of_starts,
    flow_paths,
    flow_rates,
)
from icltheory.plotting.gap import (
    GapPanel,
    excess_hills,
    gap_panels,
    gap_phases,
)
from icltheory.plotting.language import (
    AccuracyPanel,
    BeforeAfter,
    ShotsPanel,
    accuracy_against_rate,
    accuracy_against_shots,
    algorithm1_gains,
    norms_beside_accuracy,
    search_cost,
)
from icltheory.plotting.ltb_gpt2 import Setting, models_between_lines
from icltheory.plotting.noise import error_sources, noise_against_shots
from icltheory.plotting.patterns_icl import PatternPanel, PatternSeries, pattern_panels
from icltheory.plotting.patterns_icl_neurons import NeuronCloud, neuron_clouds
from icltheory.plotting.patterns_layers import (
    attention_by_layer,
    errors_against_sum,
    labels_by_layer,
)
from icltheory.plotting.patterns_pruning import (
    PrunedLine,
    errors_against_kept,
    errors_against_pruned,
    spectra_after_training,
)
from icltheory.plotting.phases import Line, LinePanel, head_score_maps, line_panels
from icltheory.plotting.pruning import (
    Gain,
    RatePanel,
    condition_numbers_by_layer,
    errors_against_rate,
    gains_of_choices,
)
from icltheory.plotting.recipes import Ratio, recipes_beside_baseline
from icltheory.plotting.regression import (
    Curve,
    error_against_examples,
    errors_by_setting,
    errors_over_training,
)
from icltheory.plotting.style import COLOURS, STYLE
from icltheory.plotting.trajectories import norms_along_depth, ratio_heat_maps

__all__ = [
    "COLOURS",
    "STYLE",
    "AccuracyPanel",
    "BeforeAfter",
    "ConditionCurve",
    "Curve",
    "DiversityPanel",
    "DiversitySeries",
    "FlowPanel",
    "FlowStarts",
    "Gain",
    "GapPanel",
    "LengthPanel",
    "LengthSeries",
    "Line",
    "LinePanel",
    "NeedPanel",
    "NeuronCloud",
    "PatternPanel",
    "PatternSeries",
    "PrunedLine",
    "RatePanel",
    "Ratio",
    "SamplePanel",
    "Setting",
    "ShotsPanel",
    "accuracy_against_rate",
    "accuracy_against_shots",
    "algorithm1_gains",
    "attention_along_training",
    "attention_by_layer",
    "bounds_against_samples",
    "bounds_by_learner",
    "condition_numbers_along_depth",
    "condition_numbers_by_layer",
    "curves_against_diversity",
    "descents_beside_flow",
    "error_against_examples",
    "error_sources",
    "errors_against_kept",
    "errors_against_length",
    "errors_against_pruned",
    "errors_against_rate",
    "errors_against_sum",
    "errors_by_setting",
    "errors_over_training",
    "excess_hills",
    "fates_of_starts",
    "flow_paths",
    "flow_rates",
    "gains_of_choices",
    "gap_panels",
    "gap_phases",
    "head_score_maps",
    "labels_by_layer",
    "lengths_that_suffice",
    "line_panels",
    "models_between_lines",
    "neuron_clouds",
    "noise_against_shots",
    "norms_along_depth",
    "norms_beside_accuracy",
    "pattern_panels",
    "recipes_beside_baseline",
    "ratio_heat_maps",
    "search_cost",
    "spectra_after_training",
]
