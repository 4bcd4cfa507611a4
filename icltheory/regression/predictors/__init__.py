"""In-context predictors without training, for one query or after every prefix.

A predictor maps ``(X, y, x_query)``, one prompt ``(N, d), (N,), (d,)`` or a batch of
them, to the prediction ``()`` or ``(B,)``. Its ``*_prefixes`` twin maps ``(X, y)`` and,
optionally, ``X_query`` to the prediction after each of the first k = 0, ..., P - 1
examples, much faster than P calls. All are traceable; dtype follows the prompt.
"""

from icltheory.regression.predictors.finite_pool import (
    discrete_mmse,
    discrete_mmse_prefixes,
)
from icltheory.regression.predictors.gradient import (
    gradient_descent,
    gradient_descent_prefixes,
    tune_step_size,
)
from icltheory.regression.predictors.least_squares import ols, ols_prefixes
from icltheory.regression.predictors.neighbors import (
    nearest_neighbors,
    nearest_neighbors_prefixes,
)
from icltheory.regression.predictors.newton_schulz import newton, newton_prefixes
from icltheory.regression.predictors.shrinkage import (
    bayes,
    bayes_prefixes,
    ridge,
    ridge_prefixes,
)
from icltheory.regression.predictors.simple import (
    averaging,
    averaging_prefixes,
    zero,
    zero_prefixes,
)
from icltheory.regression.predictors.sparse import (
    LassoFit,
    lasso,
    lasso_prefixes,
    lasso_weights,
)

__all__ = [
    "LassoFit",
    "averaging",
    "averaging_prefixes",
    "bayes",
    "bayes_prefixes",
    "discrete_mmse",
    "discrete_mmse_prefixes",
    "gradient_descent",
    "gradient_descent_prefixes",
    "lasso",
    "lasso_prefixes",
    "lasso_weights",
    "nearest_neighbors",
    "nearest_neighbors_prefixes",
    "newton",
    "newton_prefixes",
    "ols",
    "ols_prefixes",
    "ridge",
    "ridge_prefixes",
    "tune_step_size",
    "zero",
    "zero_prefixes",
]
