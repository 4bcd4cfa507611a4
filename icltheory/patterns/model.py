"""The one-layer nonlinear transformer of Li et al., equation (7)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_key, check_positive_int
from icltheory._typing import Array, Float, PRNGKey
from icltheory.layered import MatrixSpec
from icltheory.patterns._attention import (
    GROUPS,
    check_width,
    gaussian,
    layer_specs,
    query_weights,
    tokens,
)
from icltheory.patterns.task import PatternTask

__all__ = ["PatternTransformer"]

Params = dict[str, Any]
Number = float | int | Real[ArrayLike, ""]


@dataclasses.dataclass(frozen=True)
class PatternTransformer:
    r"""One layer of attention and one of ReLU neurons, equation (7).

    .. math::
        F = a^\top \operatorname{ReLU}\Bigl( W_O \sum_{i=1}^{l} W_V p_i\,
        \operatorname{softmax}_i \bigl( (W_K p_i)^\top W_Q p_{query} \bigr) \Bigr) .

    The sum is over the l contexts: the query is no key. (The slides print the letter I
    for its upper end, which is a slip.) A layered model of one block; its parameters
    are ``{"W_Q", "W_K", "W_V", "W_O", "a"}``, of which ``a`` is never trained. Inputs
    are a :class:`PatternPrompt` or ``(P, P_query)``, with any leading axes.

    Args:
        num_neurons: Number m of neurons, even; 64 is read off the authors' figures.

    Example:
        >>> from icltheory.patterns import PatternTask
        >>> from icltheory.layered import forward
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(jax.random.key(0), task)
        >>> prompt = task.sample(jax.random.key(1), 5, 20, 0.8)
        >>> forward(model, params, prompt).shape
        (5,)
        >>> model.attention(params, prompt).shape
        (1, 5, 20)

    Source: Li et al. (2024), equation (7).
    """

    num_neurons: int = 64

    def __post_init__(self):
        check_positive_int("num_neurons", self.num_neurons)
        if self.num_neurons % 2:
            raise ValueError(
                f"num_neurons: expected an even number, got {self.num_neurons}"
            )

    @property
    def num_layers(self) -> int:
        """Number of blocks, which is 1."""
        return 1

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of parameters that are not trained."""
        return ("a",)

    def init(
        self,
        key: PRNGKey,
        task: PatternTask,
        *,
        attention_scale: Number = 0.2,
        neuron_scale: Number = 0.02,
    ) -> Params:
        r"""Draws initial weights: small multiples of the identity and Gaussian neurons.

        .. math:: W_Q = W_K = \delta\, \mathrm{diag}(1_{d_X}, 0_{d_Y}) , \quad
            W_V = \delta I , \quad (W_O)_{ij} \sim N(0, \xi^2) , \quad
            a_i = \pm 1/m .

        Half of the a_i are positive, at random places. The step sizes of the authors
        are not known; a_i = 1/m rather than their 1/sqrt(m) is what gives label parts
        of the size of their figures.

        Args:
            key: Random key.
            task: Task whose widths, and dtype, the model takes.
            attention_scale: delta.
            neuron_scale: xi.

        Returns:
            The parameters.

        Source: Li et al. (2024), model training.
        """
        check_key("key", key)
        m, D, dtype = self.num_neurons, task.width, task.dtype
        first, second = jax.random.split(key)
        delta = jnp.asarray(attention_scale, dtype)
        features = (jnp.arange(D) < task.dim).astype(dtype)
        signs = jnp.where(jnp.arange(m) < m // 2, 1, -1).astype(dtype)
        return {
            "W_Q": delta * jnp.diag(features),
            "W_K": delta * jnp.diag(features),
            "W_V": delta * jnp.eye(D, dtype=dtype),
            "W_O": gaussian(first, (m, D), neuron_scale, dtype),
            "a": jax.random.permutation(second, signs) / m,
        }

    def embed(self, params: Params, inputs: Any) -> tuple[Array, Array]:
        """Returns the tokens unchanged."""
        P, P_query = tokens(inputs)
        check_width(params, P.shape[-1], "prompt")
        return P, P_query

    def block(
        self, layer: int, params: Params, hidden: tuple[Array, Array]
    ) -> Float[Array, "*B m"]:
        """Applies attention, then the neurons before their ReLU."""
        P, P_query = hidden
        weights = query_weights(params["W_K"], params["W_Q"], P, P_query)
        pooled = jnp.einsum("...l,...ld->...d", weights, P)
        return (pooled @ params["W_V"].T) @ params["W_O"].T

    def read_out(
        self, params: Params, hidden: Float[Array, "*B m"]
    ) -> Float[Array, "*B"]:
        """Returns the sum of the neurons' outputs with weights a."""
        return jax.nn.relu(hidden) @ params["a"]

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """The four weight matrices; W_O is the group ``"mlp"``."""
        if layer != 0:
            raise ValueError(f"layer: expected 0, got {layer}")
        return layer_specs(GROUPS | {"W_O": "mlp"})

    def attention(self, params: Params, inputs: Any) -> Float[Array, "1 *B l"]:
        """Attention weights of the query to each context."""
        P, P_query = self.embed(params, inputs)
        return query_weights(params["W_K"], params["W_Q"], P, P_query)[None]
