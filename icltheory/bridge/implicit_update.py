"""The change of weights that has the effect of the demonstrations on a block's MLP."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int, check_shape
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float
from icltheory.bridge._arrays import replicated
from icltheory.bridge.streams import padded_tokens
from icltheory.bridge.tokenizer import read_rows
from icltheory.layered import get_matrix
from icltheory.pruning import module_matrices

__all__ = ["ImplicitUpdates", "block_update", "implicit_updates"]


class ImplicitUpdates(Record):
    r"""Sizes of the implicit updates of several prompts.

    Args:
        norms: :math:`\|\Delta W\|_F` of each layer and prompt, ``(L, B)``.
        weight_norms: :math:`\|W\|_F` of each layer, ``(L,)``.
        shifts: :math:`|z_C - z_0| / |z_0|` of each layer and prompt, ``(L, B)``.

    Source: Dherin et al. (2025), "Learning without training".
    """

    norms: Float[Array, "L B"]
    weight_norms: Float[Array, " L"]
    shifts: Float[Array, "L B"]

    @property
    def relative(self) -> Float[Array, "L B"]:
        r"""Norms of the updates over those of the weights."""
        return self.norms / self.weight_norms[:, None]


@calculator
def block_update(
    W: Float[Array, "m n"], z_with: Float[Array, " n"], z_without: Float[Array, " n"]
) -> tuple[Float[Array, " m"], Float[Array, " n"]]:
    r"""Factors of the smallest change of a matrix that has the demonstrations' effect.

    .. math::
        \Delta W = \frac{W (z_C - z_0)\, z_0^\top}{|z_0|^2} , \qquad
        (W + \Delta W)\, z_0 = W z_C ,

    of rank 1, where :math:`z_C` and :math:`z_0` are the inputs of W at the query with
    and without the demonstrations in front. No other change with this property has a
    smaller Frobenius norm, which is :math:`|W (z_C - z_0)| / |z_0|`. It restates the
    forward pass and says nothing of how the model was trained.

    Args:
        W: The matrix that reads the query's hidden state.
        z_with: :math:`z_C`.
        z_without: :math:`z_0`; for 0 there is no update, and the result is NaN.

    Returns:
        The factors a and b of :math:`\Delta W = a b^\top`.

    Example:
        >>> z_with, z_without = jnp.array([1.0, 3.0]), jnp.ones(2)
        >>> a, b = block_update(jnp.eye(2), z_with, z_without)
        >>> ((jnp.eye(2) + jnp.outer(a, b)) @ z_without).tolist()
        [1.0, 3.0]

    Source: Dherin et al. (2025), "Learning without training: the implicit dynamics of
    in-context learning", Theorem 2.2.
    """
    check_shape("z_with", z_with, (W.shape[1],))
    check_shape("z_without", z_without, (W.shape[1],))
    size = jnp.sum(z_without * z_without)
    return W @ (z_with - z_without), z_without / size


def implicit_updates(
    model: Any,
    prompts: Sequence[Sequence[int]],
    queries: Sequence[Sequence[int]],
    *,
    layers: Sequence[int] | None = None,
    batch_size: int = 8,
) -> ImplicitUpdates:
    r"""Sizes of the implicit updates of a language model's MLPs.

    .. math:: \|\Delta W\|_F = \frac{|W (z_C - z_0)|}{|z_0|}

    for W the matrices of a layer's MLP that read its input, one below the other (with
    their gates; all experts and the router of a mixture), and the input z at the last
    token of the prompt and of the query alone. See :func:`block_update`.

    Args:
        model: The model.
        prompts: Tokens of each query with its demonstrations in front.
        queries: Tokens of each query without them.
        layers: Numbers of the layers; all if not given.
        batch_size: Most rows that run together.

    Returns:
        The norms, in the order of the layers.

    Example:
        >>> from icltheory.bridge import Architecture, Decoder, LanguageModel
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> model = LanguageModel(Decoder(arch), Decoder(arch).init(jax.random.key(0)))
        >>> implicit_updates(model, [[1, 2, 3, 4]], [[3, 4]]).norms.shape
        (2, 1)

    Source: Dherin et al. (2025), "Learning without training: the implicit dynamics of
    in-context learning".
    """
    check_positive_int("batch_size", batch_size)
    if len(prompts) != len(queries) or not len(prompts):
        raise ValueError(
            f"queries: expected one for each of {len(prompts)} prompts, at least one, "
            f"got {len(queries)}"
        )
    wanted = range(model.num_layers) if layers is None else tuple(layers)
    seen = [
        mlp_inputs(model, rows, name, layers=wanted, batch_size=batch_size)
        for name, rows in (("prompts", prompts), ("queries", queries))
    ]
    norms, sizes, shifts = [], [], []
    for layer, z_with, z_without in zip(wanted, *seen, strict=True):
        matrices = readers(model, layer)
        moved, size, shift = update_sizes(matrices, z_with, z_without)
        norms.append(moved)
        sizes.append(size)
        shifts.append(shift)
    return ImplicitUpdates(*map(jnp.stack, (norms, sizes, shifts)))


def mlp_inputs(
    model: Any,
    rows: Sequence[Sequence[int]],
    name: str = "rows",
    *,
    layers: Sequence[int],
    batch_size: int = 8,
) -> Float[np.ndarray, "L B n"]:
    """Inputs of the MLPs of some layers at the last token of each row, in float32."""
    found = np.empty((len(layers), len(rows), model.arch.width), np.float32)
    depth = max(layers) + 1
    for some, layer, stream, last in layer_streams(
        model, rows, name, batch_size, depth
    ):
        if layer in layers:
            weights = model.params["layers"][layer]
            place = list(layers).index(layer)
            found[place, some] = mlp_input(model, layer, weights, stream, last)
    return found


def layer_streams(
    model: Any,
    rows: Sequence[Sequence[int]],
    name: str = "rows",
    batch_size: int = 8,
    depth: int | None = None,
) -> Iterator[tuple[np.ndarray, int, Any, np.ndarray]]:
    """Yields numbers of rows, a layer, the stream that enters it, and last tokens."""
    read = read_rows(name, rows, model.vocab_size)
    lengths = np.array([len(row) for row in read])
    if not 0 < lengths.min() <= lengths.max() <= model.context_length:
        raise ValueError(
            f"{name}: expected rows of 1 to {model.context_length} tokens, got "
            f"{lengths.min()} to {lengths.max()}"
        )
    rotary = model.arch.rotary
    if rotary is not None and rotary.switch is not None:
        batch_size = 1  # the longest row of a batch decides its rotary frequencies
    order = np.argsort(lengths, kind="stable")
    for first in range(0, len(read), batch_size):
        some = order[first : first + batch_size]
        longest = int(lengths[some[-1]])
        if batch_size > 1:  # few lengths are compiled
            longest = min(-(-longest // 32) * 32, model.context_length)
        tokens = padded_tokens([read[i] for i in some], longest)
        stream = _embed(model.decoder, model.params["embed"], tokens)
        for layer, weights in enumerate(model.params["layers"][:depth]):
            yield some, layer, stream, lengths[some] - 1
            stream = _block(model.decoder.of_layer(layer), weights, stream)


def mlp_input(
    model: Any, layer: int, weights: Any, stream: Any, last: np.ndarray
) -> Float[np.ndarray, "B n"]:
    """Input of a layer's MLP at the last tokens, for these weights of the layer."""
    path = _specs(model, layer)[0].path[2:-1]
    block = model.decoder.of_layer(layer)
    return np.asarray(replicated(_input(block, path, weights, stream, last)))


def readers(model: Any, layer: int) -> list[Array]:
    """Matrices of an MLP that read its input: all but those that read the neurons."""
    return [get_matrix(model.params, spec) for spec in _specs(model, layer)]


def _specs(model: Any, layer: int) -> list[Any]:
    specs = module_matrices(model, layer, "mlp")
    return [spec for spec in specs if not spec.name.endswith("W_out")]


@functools.partial(jax.jit, static_argnums=0)
def _embed(decoder, table, tokens):
    return decoder.embed_after({"embed": table}, tokens, 0)


@functools.partial(jax.jit, static_argnums=0)
def _block(decoder, weights, stream):
    return decoder.run_block(weights, stream)[0]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _input(decoder, path, weights, stream, last):
    z = decoder.run_block_inputs(weights, stream)[1][path].astype(jnp.float32)
    z = z.reshape(*stream.mask.shape, -1)
    return jnp.take_along_axis(z, last[:, None, None], axis=1)[:, 0]


@jax.jit
def update_sizes(matrices, z_with, z_without):
    """Norms of the updates, that of the weights, and relative shifts of the input."""
    moved = squares = 0.0
    for W in matrices:
        W = W.astype(jnp.float32)
        change = jnp.einsum("bn,mn->bm", z_with - z_without, W, precision="highest")
        moved = moved + jnp.sum(jnp.square(change), axis=1)
        squares = squares + jnp.sum(jnp.square(W))
    length = jnp.linalg.norm(z_without, axis=1)
    shift = jnp.linalg.norm(z_with - z_without, axis=1) / length
    return jnp.sqrt(moved) / length, jnp.sqrt(squares), shift
