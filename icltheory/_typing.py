"""Array aliases used in annotations; axis letters are those of the papers.

``L`` layers, ``N`` demonstrations, ``n`` token width, ``d`` input dimension,
``B`` batch, ``P`` points of a prompt (examples and query).
"""

from typing import TYPE_CHECKING, Any

from jax import Array
from jaxtyping import Bool, Float, Int, Key

from icltheory import _import_effects

if TYPE_CHECKING:
    PyTree = Any  # pyright knows no type of jaxtyping's
else:
    from jaxtyping import PyTree

Scalar = Float[Array, ""]
PRNGKey = Key[Array, ""]

_import_effects.one_at_a_time()
_import_effects.warn_of_wrong_sums()

__all__ = ["Array", "Bool", "Float", "Int", "Key", "PRNGKey", "PyTree", "Scalar"]
