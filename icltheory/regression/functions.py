"""A source of one's own functions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from icltheory._checks import check_positive_int, check_shape
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression.sources import Source, float_type

__all__ = ["Functions"]


class Functions(Source):
    r"""Functions of one's own: a new one for each prompt, of standard normal inputs.

    .. math:: x \sim N(0, I) , \qquad y = f(x) , \quad f \sim \mathtt{draw}

    Args:
        dim: Input dimension d.
        draw: ``draw(key, X)`` draws a function and returns its labels ``(P,)`` at
            inputs ``(P, d)``, with noise if there is any, in jax.numpy.
        dtype: Type of the inputs; None is JAX's default float type.

    Example:
        >>> def sines(key, X):
        ...     return jnp.sin(X @ jax.random.normal(key, X.shape[1:]))
        >>> prompt = Functions(3, sines).sample(jax.random.key(0), 10, 8)
        >>> prompt.X.shape, prompt.y_query.shape
        ((8, 10, 3), (8,))
    """

    dim: int = eqx.field(static=True)
    draw: Any = eqx.field(static=True)
    dtype: Any = eqx.field(static=True, default=None)

    def __post_init__(self):
        check_positive_int("dim", self.dim)
        if not callable(self.draw):
            raise ValueError(f"draw: expected a function (key, X), got {self.draw!r}")
        self.dtype = float_type(self.dtype)

    def sample_parameters(
        self, key: PRNGKey, num_prompts: int, *, active_dims: Any = None
    ) -> Any:
        """A key for each prompt, which draws its function."""
        return jax.random.split(key, num_prompts)

    def evaluate(self, w: Any, X: Float[Array, "B P d"]) -> Float[Array, "B P"]:
        """What the functions return."""
        y = jax.vmap(self.draw)(w, X)
        check_shape("what draw returns", y, X.shape[:2])
        return jnp.asarray(y, X.dtype)
