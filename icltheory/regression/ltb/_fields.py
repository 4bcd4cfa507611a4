"""Types of the models' fields: given as anything that becomes an array, kept as one."""

from typing import TYPE_CHECKING

from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._typing import Array
from icltheory.regression._linalg import Matrix, Number, Vector

if TYPE_CHECKING:
    # One by one: type checkers read a chain as variables, not as types.
    MatrixField = Array
    NumberField = Array
    VectorField = Array
    WeightField = Array
else:
    MatrixField, NumberField, VectorField = Matrix, Number, Vector
    WeightField = Float[ArrayLike, "_rows _n"]
