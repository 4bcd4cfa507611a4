"""Types of the models' fields, which accept anything convertible to an array."""

from typing import TYPE_CHECKING

from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._typing import Array
from icltheory.regression._linalg import Matrix, Number, Vector

if TYPE_CHECKING:
    # They are assigned one by one, since type checkers read a chained assignment as
    # variables.
    MatrixField = Array
    NumberField = Array
    VectorField = Array
    WeightField = Array
else:
    MatrixField, NumberField, VectorField = Matrix, Number, Vector
    WeightField = Float[ArrayLike, "_rows _n"]
