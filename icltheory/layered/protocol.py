"""The protocol of layered models, and functions that run them.

Hidden states may be any pytree. The hidden state of layer l is what enters block l:
layer 0 takes the embedding, and ``num_layers`` stands for what enters the read-out. The
blocks are run by a Python loop, because layers may differ in shape and in kind.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax

from icltheory._arguments import INTEGERS, holds_numbers, shown
from icltheory._checks import check_positive_int
from icltheory._named_errors import named_errors
from icltheory._typing import PyTree
from icltheory.layered.matrices import MatrixSpec, get_matrix

__all__ = [
    "LayeredModel",
    "all_hidden",
    "check_layered",
    "check_model",
    "forward",
    "forward_edited",
    "forward_from",
    "hidden_before",
]


@runtime_checkable
class LayeredModel(Protocol):
    """A model that is a sequence of blocks between an embedding and a read-out.

    Implementations are small and hashable, so that they can be static arguments of
    ``jax.jit``; the parameters travel separately. Layers count from 0.

    Source: Yao et al. (2024), section 3.4.
    """

    @property
    def num_layers(self) -> int:
        """Number of blocks."""
        ...

    def embed(self, params: Any, inputs: Any) -> Any:
        """The hidden state that enters block 0.

        Args:
            params: Parameters of the whole model.
            inputs: What the model takes.

        Returns:
            Hidden state, any pytree.
        """
        ...

    def block(self, layer: int, params: Any, hidden: Any) -> Any:
        """Applies one block.

        Args:
            layer: Number of the block.
            params: Parameters of the whole model.
            hidden: Hidden state that enters it.

        Returns:
            Hidden state that leaves it.
        """
        ...

    def read_out(self, params: Any, hidden: Any) -> Any:
        """Outputs from the hidden state after the last block.

        Args:
            params: Parameters of the whole model.
            hidden: Hidden state after the last block.

        Returns:
            Outputs of the model.
        """
        ...

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """The named weight matrices of one block.

        Args:
            layer: Number of the block.

        Returns:
            Where each matrix lives in the parameters.
        """
        ...


@named_errors
def check_layered(model: Any) -> None:
    """Raises unless an object has the methods of :class:`LayeredModel`.

    Args:
        model: The object.

    Returns:
        Nothing.

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


@named_errors
def check_model(model: Any, params: PyTree, inputs: PyTree) -> None:
    """Checks that a user's model works with this package; raises if not.

    Nothing is computed: shapes are followed through the layers.

    Args:
        model: The model.
        params: Its parameters.
        inputs: An example of what it takes.

    Returns:
        Nothing.

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
        if not all(map(holds_numbers, jax.tree.leaves(tree))):
            raise ValueError(f"{name}: expected a tree of arrays, got {shown(tree)}")
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


@named_errors
def forward(model: LayeredModel, params: PyTree, inputs: PyTree) -> Any:
    """Runs the whole model.

    Args:
        model: The layered model.
        params: Its parameters.
        inputs: Its inputs.

    Returns:
        Its outputs.
    """
    return forward_from(model, params, model.embed(params, inputs), 0)


@named_errors
def forward_from(model: LayeredModel, params: PyTree, hidden: Any, layer: int) -> Any:
    """Runs the model from the hidden state that enters block ``layer``.

    A sweep that changes only layer l computes the state before l once, with
    :func:`hidden_before`, and calls this for every change.

    Args:
        model: The layered model.
        params: Its parameters; blocks below ``layer`` are not used.
        hidden: Hidden state that enters block ``layer``.
        layer: From 0 to ``num_layers``; ``num_layers`` only reads out.

    Returns:
        Outputs of the model.
    """
    _check_layer(model, layer)
    for index in range(layer, model.num_layers):
        hidden = model.block(index, params, hidden)
    return model.read_out(params, hidden)


@named_errors
def hidden_before(
    model: LayeredModel, params: PyTree, inputs: PyTree, layer: int
) -> Any:
    """Runs the blocks below ``layer`` and returns the hidden state that enters it.

    Args:
        model: The layered model.
        params: Its parameters; blocks from ``layer`` on are not used.
        inputs: Its inputs.
        layer: From 0 (the embedding) to ``num_layers`` (what the read-out takes).

    Returns:
        Hidden state that enters block ``layer``.
    """
    _check_layer(model, layer)
    hidden = model.embed(params, inputs)
    for index in range(layer):
        hidden = model.block(index, params, hidden)
    return hidden


@named_errors
def all_hidden(model: LayeredModel, params: PyTree, inputs: PyTree) -> tuple[Any, ...]:
    """Hidden states at every depth; entry l enters block l.

    Args:
        model: The layered model.
        params: Its parameters.
        inputs: Its inputs.

    Returns:
        ``num_layers + 1`` hidden states, the embedding first.
    """
    states = [model.embed(params, inputs)]
    for index in range(model.num_layers):
        states.append(model.block(index, params, states[-1]))
    return tuple(states)


@named_errors
def forward_edited(
    model: LayeredModel,
    params: PyTree,
    inputs: PyTree,
    edits: Mapping[int, Callable[[Any], Any]],
) -> Any:
    """Runs the whole model with its hidden state changed at chosen depths.

    Every causal experiment on the residual stream is of this form: to remove a
    direction, to replace the state by that of another prompt, to add a vector.

    Args:
        model: The layered model.
        params: Its parameters.
        inputs: Its inputs.
        edits: For a depth from 0 (the embedding) to ``num_layers`` (what the read-out
            takes), a function of the hidden state there that returns the new one.

    Returns:
        Outputs of the model.

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
        if not isinstance(depth, INTEGERS) or not 0 <= depth <= model.num_layers:
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
