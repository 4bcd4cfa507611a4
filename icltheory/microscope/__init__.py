"""The microscope: which algorithm does a model run in context?

``identify(model, source, num_examples=10, key=key)`` compares the answers of any model
f(X, y, x) with the best member of each family of algorithms: gradient descent, GD++,
Newton, ridge, the Lasso, kernels, neighbours, posteriors. The result prints a summary,
and has a table and a figure. Models are predictors, JAX functions, or those of NumPy
and PyTorch by :class:`NumpyModel` and :class:`TorchModel`. :func:`along_layers`,
:func:`along_models` and :func:`along_shifts` do it along an axis, and
:func:`identify_labels` for a language model on a classification task.

Stability: provisional.
"""

from icltheory.microscope.analysis import identify
from icltheory.microscope.axes import (
    Along,
    Probe,
    along_layers,
    along_models,
    along_shifts,
    probe,
)
from icltheory.microscope.families import (
    FAMILIES,
    Family,
    Filtered,
    Filters,
    KernelRidge,
    KernelSmoother,
    Neighbors,
    Parameter,
    Rule,
    families_for,
)
from icltheory.microscope.intervals import (
    SkewedEstimate,
    explained_share,
    mixture_weights,
    weight_intervals,
)
from icltheory.microscope.language import (
    LabelCandidate,
    LabelIdentification,
    identify_labels,
    label_rules,
)
from icltheory.microscope.linearity import (
    RiskGivenInputs,
    bayes_gap,
    linearity_in_labels,
    linearity_in_query,
    risk_given_inputs,
)
from icltheory.microscope.models import (
    NumpyModel,
    Responses,
    TorchModel,
    WithParams,
    responses,
)
from icltheory.microscope.records import Analysis, Candidate, Identification

__all__ = [
    "FAMILIES",
    "Along",
    "Analysis",
    "Candidate",
    "Family",
    "Filtered",
    "Filters",
    "Identification",
    "KernelRidge",
    "KernelSmoother",
    "LabelCandidate",
    "LabelIdentification",
    "Neighbors",
    "NumpyModel",
    "Parameter",
    "Probe",
    "Responses",
    "RiskGivenInputs",
    "Rule",
    "SkewedEstimate",
    "TorchModel",
    "WithParams",
    "along_layers",
    "along_models",
    "along_shifts",
    "bayes_gap",
    "explained_share",
    "families_for",
    "identify",
    "identify_labels",
    "label_rules",
    "linearity_in_labels",
    "linearity_in_query",
    "mixture_weights",
    "probe",
    "responses",
    "risk_given_inputs",
    "weight_intervals",
]
