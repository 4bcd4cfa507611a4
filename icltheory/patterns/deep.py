"""Pattern transformer with several layers of attention and ReLU neurons."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_key, check_positive_int
from icltheory._typing import Array, Float, PRNGKey
from icltheory.layered import MatrixSpec, all_hidden
from icltheory.patterns._attention import (
    GROUPS,
    check_width,
    gaussian,
    layer_specs,
    tokens,
)
from icltheory.patterns.task import PatternTask

__all__ = ["DeepPatternTransformer"]

Params = dict[str, Any]
Number = float | int | Real[ArrayLike, ""]


@dataclasses.dataclass(frozen=True)
class DeepPatternTransformer:
    r"""L layers of attention to the contexts and a ReLU network, with residuals.

    .. math::
        h_i \leftarrow h_i + \sum_{j \le l} A_{ij} W_V h_j , \qquad
        h_i \leftarrow h_i + W_U \operatorname{ReLU}(W_O h_i) , \qquad
        F = w^\top h_{query} ,

    where every token attends, and the contexts alone are keys: A is the softmax of
    (W_K h_j)' W_Q h_i over j = 1..l. The parameters are stacks with a leading axis L:
    ``{"W_Q", "W_K", "W_V", "W_O", "W_U"}``, and ``"w"``. The authors' layers are not
    known in detail; these are chosen.

    Args:
        num_layers: Number L of layers.
        num_neurons: Number m of neurons of a layer.

    Example:
        >>> from icltheory.patterns import PatternTask
        >>> from icltheory.layered import forward
        >>> task, model = PatternTask(6, 24, 2.0), DeepPatternTransformer(3, 64)
        >>> params = model.init(jax.random.key(0), task)
        >>> prompt = task.sample(jax.random.key(1), 5, 20, 0.8)
        >>> forward(model, params, prompt).shape
        (5,)
        >>> model.attention(params, prompt).shape
        (3, 5, 20)

    Source: Li et al. (2024), numerical experiments with several layers.
    """

    num_layers: int = 3
    num_neurons: int = 64

    def __post_init__(self):
        check_positive_int("num_layers", self.num_layers)
        check_positive_int("num_neurons", self.num_neurons)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of parameters that are not trained; empty for this model."""
        return ()

    def init(
        self,
        key: PRNGKey,
        task: PatternTask,
        *,
        attention_scale: Number = 0.2,
        attention_noise: Number = 0.02,
        neuron_scale: Number = 0.1,
    ) -> Params:
        """Draws initial weights: noisy multiples of the identity, and Gaussian neurons.

        Args:
            key: Random key.
            task: Task whose widths, and dtype, the model takes.
            attention_scale: Factor on the identity in W_Q, W_K and W_V.
            attention_noise: Standard deviation of what is added to them.
            neuron_scale: Standard deviation of W_O, W_U and w.

        Returns:
            The parameters.
        """
        check_key("key", key)
        L, m, D, dtype = self.num_layers, self.num_neurons, task.width, task.dtype
        keys = jax.random.split(key, 6)
        eye = jnp.asarray(attention_scale, dtype) * jnp.eye(D, dtype=dtype)
        params = {
            name: eye[None] + gaussian(own, (L, D, D), attention_noise, dtype)
            for name, own in zip(GROUPS, keys[:3], strict=True)
        }
        return params | {
            "W_O": gaussian(keys[3], (L, m, D), neuron_scale, dtype),
            "W_U": gaussian(keys[4], (L, D, m), neuron_scale, dtype),
            "w": gaussian(keys[5], (D,), neuron_scale, dtype),
        }

    def embed(self, params: Params, inputs: Any) -> Float[Array, "*B P D"]:
        """Returns the tokens, the query last."""
        P, P_query = tokens(inputs)
        check_width(params, P.shape[-1], "prompt")
        return jnp.concatenate([P, P_query[..., None, :]], axis=-2)

    def block(
        self, layer: int, params: Params, hidden: Float[Array, "*B P D"]
    ) -> Float[Array, "*B P D"]:
        """Applies one layer of attention and neurons."""
        W_V, W_O, W_U = (params[name][layer] for name in ("W_V", "W_O", "W_U"))
        mixed = _weights(layer, params, hidden) @ hidden[..., :-1, :]
        hidden = hidden + mixed @ W_V.T
        return hidden + jax.nn.relu(hidden @ W_O.T) @ W_U.T

    def read_out(
        self, params: Params, hidden: Float[Array, "*B P D"]
    ) -> Float[Array, "*B"]:
        """Returns a linear function of the query token."""
        return hidden[..., -1, :] @ params["w"]

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """The five weight matrices of one layer."""
        if not 0 <= layer < self.num_layers:
            raise ValueError(f"layer: expected 0 to {self.num_layers - 1}, got {layer}")
        return layer_specs(GROUPS | {"W_O": "mlp", "W_U": "mlp"}, layer)

    def attention(self, params: Params, inputs: Any) -> Float[Array, "L *B l"]:
        """Attention of the query to each context, in every layer."""
        states = all_hidden(self, params, inputs)[:-1]
        weights = [_weights(l, params, hidden) for l, hidden in enumerate(states)]
        return jnp.stack([A[..., -1, :] for A in weights])


def _weights(layer, params, hidden):
    """Attention of every token to the contexts, in rows."""
    queries = (hidden @ params["W_Q"][layer].T) @ params["W_K"][layer]
    keys = hidden[..., :-1, :]
    return jax.nn.softmax(jnp.einsum("...id,...jd->...ij", queries, keys), axis=-1)
