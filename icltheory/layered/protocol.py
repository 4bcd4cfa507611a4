"""The protocol of layered models, and functions that run them.

Hidden states may be any pytree. The hidden state of layer l is what enters block l:
layer 0 takes the embedding, and ``num_layers`` stands for what enters the read-out. The
blocks are run by a Python loop, because layers may differ in shape and in kind.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from icltheory._checks import check_positive_int, real
from icltheory._typing import PyTree
from icltheory.layered.matrices import MatrixSpec, get_matrix


@runtime_checkable
class LayeredModel(Protocol):
    """A model that is a sequence of blocks between an embedding and a read-out.

    Implementations are small and hashable, so that they can be static arguments of
    ``jax.jit``; ``params``, those of the whole model, travel separately. Layers count
    from 0.

    Source: Yao et al. (2024), section 3.4.
    """

    @property
    def num_layers(self) -> int:
        """Number of blocks."""
        ...

    def embed(self, params: Any, inputs: Any) -> Any:
        """The hidden state that enters block 0, any pytree."""
        ...

    def block(self, layer: int, params: Any, hidden: Any) -> Any:
        """The hidden state that leaves a block, from the one that enters it."""
        ...

    def read_out(self, params: Any, hidden: Any) -> Any:
        """Outputs from the hidden state after the last block."""
        ...

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """Where the named weight matrices of one block live in the parameters."""
        ...


@dataclasses.dataclass(frozen=True)
class Batched:
    """A layered model on a batch: inputs, states and outputs gain a leading axis.

    The ``model`` takes one prompt, as :class:`~icltheory.layered.LayeredStack` does;
    its parameters stay as they are.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.attention import LinearAttentionStack
        >>> from icltheory.layered import LayeredStack, forward
        >>> I = jnp.eye(1)[None]
        >>> params = LinearAttentionStack(I, I, I)
        >>> model = Batched(LayeredStack.of(params))
        >>> prompts = (jnp.ones((2, 3, 1)), jnp.array([[1.0], [2.0]]))
        >>> forward(model, params, prompts).tolist()
        [[4.0], [8.0]]
    """

    model: LayeredModel

    @property
    def num_layers(self) -> int:
        """Number of blocks."""
        return self.model.num_layers

    def embed(self, params: Any, inputs: Any) -> Any:
        """The hidden states that enter block 0, one for each prompt."""
        return jax.vmap(self.model.embed, (None, 0))(params, inputs)

    def block(self, layer: int, params: Any, hidden: Any) -> Any:
        """Applies one block to every prompt."""

        def one(params, hidden):
            return self.model.block(layer, params, hidden)

        return jax.vmap(one, (None, 0))(params, hidden)

    def read_out(self, params: Any, hidden: Any) -> Any:
        """Outputs, one for each prompt."""
        return jax.vmap(self.model.read_out, (None, 0))(params, hidden)

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """The weight matrices of the model of one prompt."""
        return self.model.matrices(layer)


def check_layered(model: Any) -> None:
    """Raises unless an object is hashable and has the methods of a layered model.

    Example:
        >>> check_layered(3)
        Traceback (most recent call last):
        ValueError: model: expected a layered model, got int without block, embed, \
        matrices, num_layers, read_out
    """
    needed = ("block", "embed", "matrices", "num_layers", "read_out")
    absent = [name for name in needed if not hasattr(model, name)]
    kind = type(model).__name__
    if absent:
        missing = ", ".join(absent)
        raise ValueError(
            f"model: expected a layered model, got {kind} without {missing}"
        )
    try:
        hash(model)
    except TypeError:
        raise ValueError(
            f"model: expected a hashable model, got an unhashable {kind}; pass "
            "parameters separately"
        ) from None
    check_positive_int("model.num_layers", model.num_layers)
    for layer in range(model.num_layers):
        names = [spec.name for spec in model.matrices(layer)]
        if len(set(names)) < len(names):
            raise ValueError(f"model: expected distinct names of matrices, got {names}")


def check_model(model: Any, params: PyTree, inputs: PyTree) -> None:
    """Raises unless a model runs on an example of its inputs.

    Nothing is computed: shapes are followed through the layers.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.attention import LinearAttentionStack
        >>> from icltheory.layered import LayeredStack
        >>> W = jnp.ones((2, 3, 3))
        >>> stack = LinearAttentionStack(W, W, W)
        >>> check_model(LayeredStack.of(stack), stack, (jnp.ones((4, 3)), jnp.ones(3)))
    """
    check_layered(model)
    for name, tree in (("params", params), ("inputs", inputs)):
        for leaf in jax.tree.leaves(tree):
            if not isinstance(leaf, jax.ShapeDtypeStruct):
                real(name, leaf, keep=True)
    for layer in range(model.num_layers):
        for spec in model.matrices(layer):
            jax.eval_shape(lambda params, spec=spec: get_matrix(params, spec), params)
    state = _followed("embed", model.embed, params, inputs)
    for layer in range(model.num_layers):

        def block(params, hidden, layer=layer):
            return model.block(layer, params, hidden)

        state = _followed(f"block({layer}, ...)", block, params, state)
    _followed("read_out", model.read_out, params, state)


def _followed(name, function, *arguments):
    try:
        return jax.eval_shape(function, *arguments)
    except Exception as error:
        line = str(error).splitlines()[0]
        raise ValueError(f"model: expected {name} to run, got: {line}") from error


def forward(model: LayeredModel, params: PyTree, inputs: PyTree) -> Any:
    """Runs the whole model and returns its outputs."""
    return forward_from(model, params, model.embed(params, inputs), 0)


def forward_from(model: LayeredModel, params: PyTree, hidden: Any, layer: int) -> Any:
    """Runs the model from the hidden state that enters block ``layer``.

    A sweep that changes only layer l computes the state before l once, with
    :func:`hidden_before`, and calls this for every change. ``num_layers`` only reads
    out.
    """
    _check_layer(model, layer)
    for index in range(layer, model.num_layers):
        hidden = model.block(index, params, hidden)
    return model.read_out(params, hidden)


def hidden_before(
    model: LayeredModel, params: PyTree, inputs: PyTree, layer: int
) -> Any:
    """Runs the blocks below ``layer`` and returns the hidden state that enters it."""
    _check_layer(model, layer)
    hidden = model.embed(params, inputs)
    for index in range(layer):
        hidden = model.block(index, params, hidden)
    return hidden


def all_hidden(model: LayeredModel, params: PyTree, inputs: PyTree) -> tuple[Any, ...]:
    """The hidden states at the depths 0 (the embedding) to ``num_layers``."""
    states = [model.embed(params, inputs)]
    for index in range(model.num_layers):
        states.append(model.block(index, params, states[-1]))
    return tuple(states)


def forward_edited(
    model: LayeredModel,
    params: PyTree,
    inputs: PyTree,
    edits: Mapping[int, Callable[[Any], Any]],
) -> Any:
    """Runs the whole model with its hidden state changed at chosen depths.

    Such an edit removes a direction, adds a vector, or puts the state of another prompt
    in place. ``edits`` has, for a depth from 0 to ``num_layers``, a function of the
    hidden state there that returns the new one.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.attention import LinearAttentionStack
        >>> from icltheory.layered import LayeredStack
        >>> I = jnp.stack([jnp.eye(1)] * 2)
        >>> stack = LinearAttentionStack(I, I, I)
        >>> model, prompt = LayeredStack.of(stack), (jnp.ones((1, 1)), jnp.ones(1))
        >>> def double(state):
        ...     return state._replace(h_query=2 * state.h_query)
        >>> forward_edited(model, stack, prompt, {1: double}).tolist()
        [20.0]

    Source: Geiger et al. (2021), for experiments of this form.
    """
    for depth in edits:
        whole = isinstance(depth, int | np.integer)
        if not whole or not 0 <= depth <= model.num_layers:
            raise ValueError(
                f"edits: expected depths from 0 to {model.num_layers}, got {depth!r}"
            )
    hidden = model.embed(params, inputs)
    for depth in range(model.num_layers + 1):
        if depth in edits:
            hidden = edits[depth](hidden)
        if depth < model.num_layers:
            hidden = model.block(depth, params, hidden)
    return model.read_out(params, hidden)


def _check_layer(model, layer):
    if not 0 <= layer <= model.num_layers:
        raise ValueError(f"layer: expected 0 to {model.num_layers}, got {layer}")
