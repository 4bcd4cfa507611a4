"""The transformers of Li et al.: one layer, equation (7), and several with residuals.

Both are layered models: small hashable descriptions, whose parameters are dictionaries
beside them. Inputs are a :class:`PatternPrompt` or ``(P, P_query)``, with any leading
axes.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_key, check_positive_int, check_shape
from icltheory._typing import Array, Float, PRNGKey
from icltheory.layered import MatrixSpec, all_hidden, forward
from icltheory.patterns.task import PatternPrompt, PatternTask
from icltheory.regression.predictors.base import Predictor

Params = dict[str, Any]
Number = float | int | Real[ArrayLike, ""]
ATTENTION = {"W_Q": "attn", "W_K": "attn", "W_V": "attn"}


@dataclasses.dataclass(frozen=True)
class PatternTransformer:
    r"""One layer of attention and one of ReLU neurons, equation (7).

    .. math::
        F = a^\top \operatorname{ReLU}\Bigl( W_O \sum_{i=1}^{l} W_V p_i\,
        \operatorname{softmax}_i \bigl( (W_K p_i)^\top W_Q p_{query} \bigr) \Bigr) .

    The query is no key. A layered model of one block; its parameters are ``{"W_Q",
    "W_K", "W_V", "W_O", "a"}``, of which ``a`` is never trained. The number m of
    neurons is even; 64 is read off the authors' figures.

    Example:
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(task, key=jax.random.key(0))
        >>> prompt = task.sample(jax.random.key(1), 20, 5)
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
        task: PatternTask,
        *,
        key: PRNGKey,
        attention_scale: Number = 0.2,
        neuron_scale: Number = 0.02,
    ) -> Params:
        r"""Draws initial weights: small multiples of the identity and Gaussian neurons.

        .. math:: W_Q = W_K = \delta\, \mathrm{diag}(1_{d_X}, 0_{d_Y}) , \quad
            W_V = \delta I , \quad (W_O)_{ij} \sim N(0, \xi^2) , \quad
            a_i = \pm 1/m .

        Half of the a_i are positive, at random places; 1/m rather than the authors'
        1/sqrt(m) is what gives label parts of the size of their figures. delta is
        ``attention_scale`` and xi ``neuron_scale``.
        """
        check_key("key", key)
        m, D, dtype = self.num_neurons, task.width, task.dtype
        first, second = jax.random.split(key)
        delta = jnp.asarray(attention_scale, dtype)
        features = np.diag(np.arange(D) < task.dim).astype(dtype)
        signs = np.where(np.arange(m) < m // 2, 1, -1).astype(dtype)
        return {
            "W_Q": delta * features,
            "W_K": delta * features,
            "W_V": delta * np.eye(D, dtype=dtype),
            "W_O": _gaussian(first, (m, D), neuron_scale, dtype),
            "a": jax.random.permutation(second, signs) / m,
        }

    def embed(self, params: Params, inputs: Any) -> tuple[Array, Array]:
        """Returns the tokens unchanged."""
        P, P_query = _tokens(inputs)
        check_width(params, P.shape[-1], "prompt")
        return P, P_query

    def block(
        self, layer: int, params: Params, hidden: tuple[Array, Array]
    ) -> Float[Array, "*B m"]:
        """Applies attention, then the neurons before their ReLU."""
        P, P_query = hidden
        weights = query_weights(params, P, P_query)
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
        return _specs(ATTENTION | {"W_O": "mlp"})

    def attention(self, params: Params, inputs: Any) -> Float[Array, "1 *B l"]:
        """Attention weights of the query to each context."""
        return query_weights(params, *self.embed(params, inputs))[None]


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

    Example:
        >>> task, model = PatternTask(6, 24, 2.0), DeepPatternTransformer(3, 64)
        >>> params = model.init(task, key=jax.random.key(0))
        >>> prompt = task.sample(jax.random.key(1), 20, 5)
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
        task: PatternTask,
        *,
        key: PRNGKey,
        attention_scale: Number = 0.2,
        attention_noise: Number = 0.02,
        neuron_scale: Number = 0.1,
    ) -> Params:
        """Draws initial weights: noisy multiples of the identity, and Gaussian neurons.

        The scales are the factor on the identity in W_Q, W_K and W_V, and the standard
        deviations of what is added to them, and of W_O, W_U and w.
        """
        check_key("key", key)
        L, m, D, dtype = self.num_layers, self.num_neurons, task.width, task.dtype
        keys = jax.random.split(key, 6)
        eye = jnp.asarray(attention_scale, dtype) * jnp.eye(D, dtype=dtype)
        params = {
            name: eye[None] + _gaussian(own, (L, D, D), attention_noise, dtype)
            for name, own in zip(ATTENTION, keys[:3], strict=True)
        }
        return params | {
            "W_O": _gaussian(keys[3], (L, m, D), neuron_scale, dtype),
            "W_U": _gaussian(keys[4], (L, D, m), neuron_scale, dtype),
            "w": _gaussian(keys[5], (D,), neuron_scale, dtype),
        }

    def embed(self, params: Params, inputs: Any) -> Float[Array, "*B P D"]:
        """Returns the tokens, the query last."""
        P, P_query = _tokens(inputs)
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
        return _specs(ATTENTION | {"W_O": "mlp", "W_U": "mlp"}, layer)

    def attention(self, params: Params, inputs: Any) -> Float[Array, "L *B l"]:
        """Attention of the query to each context, in every layer."""
        states = all_hidden(self, params, inputs)[:-1]
        weights = [_weights(l, params, hidden) for l, hidden in enumerate(states)]
        return jnp.stack([A[..., -1, :] for A in weights])


class PatternLearner(Predictor):
    r"""A pattern transformer as a predictor: contexts, their labels and a query in.

    .. math:: (X, y, x_{query}) \mapsto F(p_1, \dots, p_l, p_{query}) , \qquad
        p_i = (x_i;\, y_i q) , \quad p_{query} = (x_{query};\, 0) .

    q is the label embedding of the task. It goes wherever a predictor or a function of
    one prompt does, such as :func:`error`.

    Example:
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(task, key=jax.random.key(0))
        >>> learner = PatternLearner(model, params, task.label_embedding)
        >>> learner.predict(jnp.ones((20, 30)), jnp.ones(20), jnp.ones(30)).shape
        ()

    Source: Li et al. (2024), equations (6) and (7).
    """

    model: Any = eqx.field(static=True)
    params: Any
    label_embedding: Any

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The output F for one query."""
        q = jnp.asarray(self.label_embedding)
        P = jnp.concatenate([X, y[:, None] * q[None]], axis=1)
        return forward(self.model, self.params, (P, jnp.concatenate([x_query, 0 * q])))

    def __call__(self, X: Array, y: Array, x_query: Array) -> Array:
        """The same, in the precision that is set."""
        return self.answer(X, y, x_query)


def check_width(params: Any, width: int, whose: str) -> None:
    """Raises unless the weights have this token width."""
    got = np.shape(params["W_V"])[-1]
    if got != width:
        expected = f"expected width {width}, as of the {whose}"
        raise ValueError(f"params: {expected}, got {got}")


def query_weights(
    params: Params, P: Float[Array, "*B l D"], P_query: Float[Array, "*B D"]
) -> Float[Array, "*B l"]:
    """Softmax over the contexts of (W_K p_i)' W_Q p_query, without the query as key."""
    # The key matrix is applied to the query's side, once instead of for every context.
    pulled = (P_query @ params["W_Q"].T) @ params["W_K"]
    return jax.nn.softmax(jnp.einsum("...ld,...d->...l", P, pulled), axis=-1)


def _weights(layer, params, hidden):
    """Attention of every token to the contexts, in rows."""
    queries = (hidden @ params["W_Q"][layer].T) @ params["W_K"][layer]
    keys = hidden[..., :-1, :]
    return jax.nn.softmax(jnp.einsum("...id,...jd->...ij", queries, keys), axis=-1)


def _tokens(inputs):
    """Contexts and query of a prompt, or of a pair ``(P, P_query)``."""
    if isinstance(inputs, PatternPrompt):
        return inputs.P, inputs.P_query
    P, P_query = map(jnp.asarray, inputs)
    check_shape("P_query", P_query, P.shape[:-2] + P.shape[-1:])
    return P, P_query


def _specs(names: dict[str, str], *index: int) -> tuple[MatrixSpec, ...]:
    """Specs of the named matrices, at an index into their leading axes."""
    return tuple(MatrixSpec(name, g, (name, *index)) for name, g in names.items())


def _gaussian(key, shape, scale, dtype):
    return jnp.asarray(scale, dtype) * jax.random.normal(key, shape, dtype)
