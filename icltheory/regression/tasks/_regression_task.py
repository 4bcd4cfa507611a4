"""Base class of task families, which samples their prompts."""

import abc
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._calculators import Noting, poisoned
from icltheory._checks import check_key, check_nonnegative_int, check_positive_int
from icltheory._noted import check_count, check_range
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression._linalg import Number
from icltheory.regression.prompts import Prompt


class RegressionTask(abc.ABC):
    r"""A distribution over functions, which samples inputs, parameters and labels.

    .. math:: x \sim D_X, \qquad w \sim D_W, \qquad y = f_w(x) + \text{noise}.

    A subclass is a frozen pytree with an integer ``dim`` and a ``dtype``; it says how
    parameters arise and how they label inputs. All of it is traceable and is drawn by
    whole-array calls, so a sharded batch has the same values as an unsharded one.
    ``targets`` names the labels, ``"real"`` or ``"sign"``, for the choice of the loss.
    """

    if TYPE_CHECKING:  # a dataclass would use an inherited property as a default

        @property
        def dim(self) -> int:
            """Input dimension d."""
            ...

        @property
        def dtype(self) -> Any:
            """Dtype of the samples."""
            ...

    @property
    def targets(self) -> str:
        """Kind of labels, here real numbers."""
        return "real"

    def sample_inputs(
        self, key: PRNGKey, num_points: int, batch_size: int
    ) -> Float[Array, "B P d"]:
        """Draws standard normal inputs, unless a family overrides them."""
        return jax.random.normal(key, (batch_size, num_points, self.dim), self.dtype)

    @abc.abstractmethod
    def sample_parameters(
        self, key: PRNGKey, batch_size: int, *, active_dims: Any = None
    ) -> Any:
        """Draws parameters of ``batch_size`` tasks, as a pytree with a leading axis."""
        ...

    @abc.abstractmethod
    def evaluate(self, w: Any, X: Float[Array, "B P d"]) -> Float[Array, "B P"]:
        """Computes labels without noise."""
        ...

    def label(
        self, key: PRNGKey, w: Any, X: Float[Array, "B P d"]
    ) -> tuple[Float[Array, "B P"], Any]:
        """Computes noisy labels; returns them with their parameters."""
        return self.evaluate(w, X), w

    def sample(
        self,
        key: PRNGKey,
        num_examples: int,
        batch_size: int,
        *,
        active_dims: Any = None,
    ) -> Prompt:
        """Draws a batch of prompts.

        Args:
            key: Typed key; the prompts are a pure function of it and of the shapes.
            num_examples: Labelled examples N a prompt, 0 or more; one query is added.
            batch_size: Prompts B.
            active_dims: Coordinates of x from this index on are set to 0 before the
                labels are made (Garg's curriculum); None for all. It may be traced:
                out of range, the inputs are then NaN.

        Returns:
            The prompts, with leading axis ``batch_size``.
        """
        check_key("key", key)
        check_nonnegative_int("num_examples", num_examples)
        check_positive_int("batch_size", batch_size)
        key_x, key_w, key_noise = jax.random.split(key, 3)
        X = self.sample_inputs(key_x, num_examples + 1, batch_size)
        if active_dims is not None:
            with Noting(active_dims) as notes:
                mask = active_mask(self.dim, active_dims)[None, None]
            X = poisoned(jnp.where(mask, X, 0), notes)
        w = self.sample_parameters(key_w, batch_size, active_dims=active_dims)
        y, w = self.label(key_noise, w, X)
        return Prompt(X[:, :-1], y[:, :-1], X[:, -1], y[:, -1], w)


class NoisyLinearTask(RegressionTask):
    """Linear functions with Gaussian noise; a subclass has the field ``noise_var``."""

    if TYPE_CHECKING:

        @property
        def noise_var(self) -> Number:
            """Variance of the noise."""
            ...

    def evaluate(
        self, w: Float[Array, "B d"], X: Float[Array, "B P d"]
    ) -> Float[Array, "B P"]:
        """<w, x>, without noise."""
        return inner_products(w, X)

    def label(
        self, key: PRNGKey, w: Float[Array, "B d"], X: Float[Array, "B P d"]
    ) -> tuple[Float[Array, "B P"], Float[Array, "B d"]]:
        """<w, x> plus noise, also drawn for 0 so that streams stay comparable."""
        y = self.evaluate(w, X)
        std = jnp.sqrt(jnp.asarray(self.noise_var, y.dtype))
        return y + std * jax.random.normal(key, y.shape, y.dtype), w


def active_mask(dim: int, active_dims: Any) -> Array:
    """Mask of the coordinates below ``active_dims``."""
    check_count("active_dims", active_dims, 1)
    check_range("active_dims", active_dims, 1, dim)
    return jnp.arange(dim) < active_dims


def inner_products(w: Array, X: Array) -> Array:
    """<w, x> of every point, computed as a sum at full precision."""
    return jnp.sum(X * w[:, None, :], axis=-1)


def set_dtype(task: Any) -> None:
    """Sets the static ``dtype`` of a task under construction."""
    dtype = np.dtype(jnp.result_type(float) if task.dtype is None else task.dtype)
    object.__setattr__(task, "dtype", dtype)
