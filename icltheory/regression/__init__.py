"""In-context regression: populations, predictors, exact risks and trained attention.

A *source* draws prompts: :class:`LinearPopulation` has exact theory, others are sparse
functions, networks, trees, pools and shifts. A *predictor* maps the examples of a
prompt to an answer. ``risk(predictor, population, num_examples)`` is exact,
``estimate_risk(predictor, source, num_examples, key=key)`` the best estimate there is,
and ``optimum(family, population, num_examples)`` the best member of a family. A risk is
E (answer - label)^2: the noise of the query is counted, nothing is halved or divided.

Stability: stable.
"""

from icltheory.regression import (
    balanced_features,
    depth,
    features,
    gaps,
    kernels,
    landscape,
    position,
    predictors,
    pretraining,
    shifts,
    transfer,
)
from icltheory.regression.blocks import LSA, LTB, EffectiveParameters
from icltheory.regression.drift import DriftingTasks
from icltheory.regression.flow_limits import flow_bounds, flow_limit
from icltheory.regression.flows import Trajectory, descend, flow
from icltheory.regression.gaps import Excess, Gap, Rates, excess, gap, rates
from icltheory.regression.gradient_blocks import AttentionWeights, GDBeta
from icltheory.regression.heads import (
    HeadRemovals,
    Heads,
    HeadTimes,
    head_plateaus,
    head_removals,
    head_times,
)
from icltheory.regression.measures import Optimum, estimate_risk, risk, squared_errors
from icltheory.regression.one_layer import FeatureMoments, OneLayer
from icltheory.regression.optima import optimum
from icltheory.regression.population import CorrelatedTasks, LinearPopulation
from icltheory.regression.predictors import (
    Averaging,
    Bayes,
    DiscreteMMSE,
    Lasso,
    LeastSquares,
    LinearStep,
    NearestNeighbors,
    Newton,
    NoClosedForm,
    Predictor,
    Ridge,
    Steps,
    Zero,
)
from icltheory.regression.recurrent import (
    DeltaRule,
    GatedLinearAttention,
    Mesa,
    chunked_predictions,
)
from icltheory.regression.shifts import PromptPool, TaskPool
from icltheory.regression.softmax import (
    AnswerExpansion,
    DebiasedStep,
    RiskExpansion,
    SoftmaxHead,
    SoftmaxHeads,
    answer_expansion,
    effective_examples,
    risk_expansion,
)
from icltheory.regression.sources import (
    DecisionTree,
    Functions,
    LinearClassification,
    PrefixPrompt,
    Prompt,
    ReluNetwork,
    Source,
    SparseLinearRegression,
)

__all__ = [
    "AttentionWeights",
    "LSA",
    "LTB",
    "AnswerExpansion",
    "Averaging",
    "Bayes",
    "CorrelatedTasks",
    "DebiasedStep",
    "DecisionTree",
    "DeltaRule",
    "DiscreteMMSE",
    "DriftingTasks",
    "EffectiveParameters",
    "Excess",
    "FeatureMoments",
    "Functions",
    "GDBeta",
    "Gap",
    "GatedLinearAttention",
    "HeadRemovals",
    "HeadTimes",
    "Heads",
    "Lasso",
    "LeastSquares",
    "LinearClassification",
    "LinearPopulation",
    "LinearStep",
    "Mesa",
    "NearestNeighbors",
    "Newton",
    "NoClosedForm",
    "OneLayer",
    "Optimum",
    "Predictor",
    "PrefixPrompt",
    "Prompt",
    "PromptPool",
    "Rates",
    "ReluNetwork",
    "Ridge",
    "RiskExpansion",
    "SoftmaxHead",
    "SoftmaxHeads",
    "Source",
    "SparseLinearRegression",
    "Steps",
    "TaskPool",
    "Trajectory",
    "Zero",
    "answer_expansion",
    "balanced_features",
    "chunked_predictions",
    "depth",
    "descend",
    "effective_examples",
    "estimate_risk",
    "excess",
    "features",
    "flow",
    "flow_bounds",
    "flow_limit",
    "kernels",
    "gap",
    "gaps",
    "head_plateaus",
    "head_removals",
    "head_times",
    "landscape",
    "optimum",
    "position",
    "predictors",
    "pretraining",
    "rates",
    "risk",
    "risk_expansion",
    "shifts",
    "squared_errors",
    "transfer",
]
