"""Names that string arguments choose from, as types for type checkers.

A wrong name is a ``ValueError`` at run time; mypy and pyright find it before. At run
time the annotations are ``str``, as a wrong name has to reach the check that lists the
right ones.
"""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    Mask = Literal["demos", "causal", "none"]
    DemoUpdates = Literal["shared", "causal", "frozen"]
    MLPForm = Literal["gated", "linear", "half"]
    FeatureMap = Literal["exact", "taylor", "positive"]
    DenseMethod = Literal["auto", "dense", "gram"]
    NormMethod = Literal["auto", "factors", "dense", "gram"]
    SpectrumMethod = Literal["auto", "rows", "symmetric", "gram"]
    Noise = Literal["gaussian", "shots", "fresh_shots"]
    MatrixNorm = Literal["spectral", "frobenius"]
    Rule = Literal["floor", "nearest", "ceil"]
    Order = Literal["magnitude", "reverse", "random"]
    PruningMethod = Literal["svd", "magnitude", "whitened"]
    ConditionForm = Literal["slides", "published"]
    GradientForm = Literal["correct", "printed"]
    SpecialExample = Literal["relevant", "wrong"]
else:
    Mask = DemoUpdates = MLPForm = FeatureMap = DenseMethod = NormMethod = str
    SpectrumMethod = Noise = MatrixNorm = Rule = Order = PruningMethod = str
    ConditionForm = GradientForm = SpecialExample = str
