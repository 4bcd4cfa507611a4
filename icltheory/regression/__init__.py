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
    bayes,
    depth,
    features,
    flow,
    kernel_descent,
    ltb,
    position,
    predictors,
    rates,
    shifts,
)
from icltheory.regression.measures import estimate_risk, risk, squared_errors
from icltheory.regression.one_layer import FeatureMoments, OneLayer
from icltheory.regression.optima import Optimum, optimum
from icltheory.regression.pools import PromptPool, TaskPool
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
from icltheory.regression.prompts import PrefixPrompt, Prompt
from icltheory.regression.sources import (
    DecisionTree,
    LinearClassification,
    QuadraticRegression,
    ReluNetwork,
    Source,
    SparseLinearRegression,
)

__all__ = [
    "Averaging",
    "Bayes",
    "CorrelatedTasks",
    "DecisionTree",
    "DiscreteMMSE",
    "FeatureMoments",
    "Lasso",
    "LeastSquares",
    "LinearClassification",
    "LinearPopulation",
    "LinearStep",
    "NearestNeighbors",
    "Newton",
    "NoClosedForm",
    "OneLayer",
    "Optimum",
    "Predictor",
    "PrefixPrompt",
    "Prompt",
    "PromptPool",
    "QuadraticRegression",
    "ReluNetwork",
    "Ridge",
    "Source",
    "SparseLinearRegression",
    "Steps",
    "TaskPool",
    "Zero",
    "bayes",
    "depth",
    "estimate_risk",
    "features",
    "flow",
    "kernel_descent",
    "ltb",
    "optimum",
    "position",
    "predictors",
    "rates",
    "risk",
    "shifts",
    "squared_errors",
]
