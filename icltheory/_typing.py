"""Types of arrays and of names used in annotations.

Axis letters are those of the papers: ``L`` layers, ``N`` demonstrations, ``n`` token
width, ``d`` input dimension, ``B`` batch, ``P`` points of a prompt (examples and
query).

A name that a string argument chooses from is a ``Literal`` for type checkers and
``str`` at run time, so that a wrong one reaches the check that lists the right ones.
"""

from typing import TYPE_CHECKING, Any

from jax import Array
from jaxtyping import Bool, Float, Int, Key

from icltheory import _import_effects

__all__ = ["Array", "Bool", "Float", "Int", "Key", "PRNGKey", "PyTree", "Scalar"]

if TYPE_CHECKING:
    from typing import Literal

    PyTree = Any  # pyright knows no type of jaxtyping's
else:
    from jaxtyping import PyTree

    class Literal:
        __class_getitem__ = classmethod(lambda cls, names: str)


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
ConditionForm = Literal["slides", "published"]
GradientForm = Literal["correct", "printed"]
SpecialExample = Literal["relevant", "wrong"]
Scalar = Float[Array, ""]
PRNGKey = Key[Array, ""]

_import_effects.one_at_a_time()
_import_effects.warn_of_wrong_sums()
