"""Inputs of a language model's matrices: their moments, and the implicit updates."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int, check_shape, wrong
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float
from icltheory.bridge.decoder import block, embed
from icltheory.bridge.sharding import replicated
from icltheory.bridge.streams import padded_tokens
from icltheory.bridge.tokenizer import read_rows
from icltheory.layered import get_matrix
from icltheory.pruning import module_matrices

__all__ = ["ImplicitUpdates", "block_update", "implicit_updates", "input_moments"]


def input_moments(
    model: Any,
    rows: Sequence[Sequence[int]],
    *,
    layers: Sequence[int] | None = None,
    module: str = "all",
    batch_size: int = 8,
) -> dict[tuple[int, str], np.ndarray]:
    r"""Second moments of each matrix's inputs, over the tokens of some rows.

    .. math:: C_{l,m} = \frac1T \sum_{t=1}^T x_t x_t^\top

    with :math:`x_t` the input of matrix m of layer l at token t, as ``(n, n)`` in
    float32 by layer and name of the matrix. One pass through the model; the moments of
    one layer are on the device together. All experts of a mixture are measured on all
    tokens.

    Args:
        rows: Tokens of each row, such as a text cut into pieces.
        layers: Numbers of the layers; all if ``None``.
        module: Which matrices, as ``"mlp"``, ``"attn"``, ``"all"`` or one name.
        batch_size: Most rows that run together; rows so long that rotary frequencies
            change run one at a time.

    Example:
        >>> from icltheory.bridge import Architecture, Decoder, LanguageModel
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> model = LanguageModel(Decoder(arch), Decoder(arch).init(jax.random.key(0)))
        >>> input_moments(model, [[1, 2, 3]], layers=[0])[0, "W_out"].shape
        (32, 32)

    Source: Wang et al. (2024), section 3.1.
    """
    check_positive_int("batch_size", batch_size)
    filled = [row for row in rows if len(row)]
    if not filled:
        raise ValueError("rows: expected at least one token, got none")
    paths = {
        layer: tuple(spec.path[2:-1] for spec in module_matrices(model, layer, module))
        for layer in (range(model.num_layers) if layers is None else layers)
    }
    sums: dict[tuple[int, str], np.ndarray] = {}
    for _, stream, _ in _embedded(model, filled, "rows", batch_size):
        for layer in range(max(paths, default=-1) + 1):
            decoder, weights = _block_of(model, layer)
            own = paths.get(layer, ())
            stream, found = _with_moments(decoder, own, weights, stream)
            for path, moment in zip(own, found, strict=True):
                # Matrices of experts are named expert_3.W_in, others by one word.
                place = (layer, ".".join(map(str, path[1:])))
                sums[place] = sums.get(place, 0) + np.asarray(replicated(moment))
    total = sum(map(len, filled))
    return {place: moment / total for place, moment in sums.items()}


class ImplicitUpdates(Record):
    r"""Sizes of the implicit updates of several prompts.

    Args:
        norms: :math:`\|\Delta W\|_F` of each layer and prompt, ``(L, B)``.
        weight_norms: :math:`\|W\|_F` of each layer, ``(L,)``.
        shifts: :math:`|z_C - z_0| / |z_0|` of each layer and prompt, ``(L, B)``.

    Source: Dherin et al. (2025).
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
        \Delta W = a b^\top = \frac{W (z_C - z_0)\, z_0^\top}{|z_0|^2} , \qquad
        (W + \Delta W)\, z_0 = W z_C ,

    where :math:`z_C` and :math:`z_0` are the inputs of W at the query with and without
    the demonstrations in front. No other change with this property has a smaller
    Frobenius norm, which is :math:`|W (z_C - z_0)| / |z_0|`. It restates the forward
    pass and says nothing about training. For :math:`z_0 = 0` there is no such change,
    and the result is NaN.

    Example:
        >>> z_with, z_without = jnp.array([1.0, 3.0]), jnp.ones(2)
        >>> a, b = block_update(jnp.eye(2), z_with, z_without)
        >>> ((jnp.eye(2) + jnp.outer(a, b)) @ z_without).tolist()
        [1.0, 3.0]

    Source: Dherin et al. (2025), Theorem 2.2.
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
        prompts: Tokens of each query with its demonstrations in front.
        queries: Tokens of each query without them.
        layers: Numbers of the layers, in the order of the result; all unless given.

    Example:
        >>> from icltheory.bridge import Architecture, Decoder, LanguageModel
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> model = LanguageModel(Decoder(arch), Decoder(arch).init(jax.random.key(0)))
        >>> implicit_updates(model, [[1, 2, 3, 4]], [[3, 4]]).norms.shape
        (2, 1)

    Source: Dherin et al. (2025).
    """
    check_positive_int("batch_size", batch_size)
    if len(prompts) != len(queries) or not len(prompts):
        wanted = f"one for each of {len(prompts)} prompts, at least one"
        raise wrong("queries", wanted, len(queries))
    wanted = range(model.num_layers) if layers is None else tuple(layers)
    inputs = []
    for name, rows in (("prompts", prompts), ("queries", queries)):
        found = np.empty((len(wanted), len(rows), model.arch.width), np.float32)
        streams = layer_streams(model, rows, name, batch_size, max(wanted) + 1)
        for some, layer, stream, last in streams:
            if layer in wanted:
                weights = model.params["layers"][layer]
                read = mlp_input(model, layer, weights, stream, last)
                found[wanted.index(layer), some] = read
        inputs.append(found)
    sizes = [
        update_sizes(readers(model, layer), *pair)
        for layer, *pair in zip(wanted, *inputs, strict=True)
    ]
    return ImplicitUpdates(*map(jnp.stack, zip(*sizes, strict=True)))


def layer_streams(
    model: Any,
    rows: Sequence[Sequence[int]],
    name: str = "rows",
    batch_size: int = 8,
    depth: int | None = None,
) -> Iterator[tuple[np.ndarray, int, Any, np.ndarray]]:
    """Yields numbers of rows, a layer, the stream that enters it, and last tokens."""
    for some, stream, last in _embedded(model, rows, name, batch_size):
        for layer in range(model.num_layers if depth is None else depth):
            yield some, layer, stream, last
            own, weights = _block_of(model, layer)
            stream, _ = block(own, False, weights, stream, None)


def mlp_input(
    model: Any, layer: int, weights: Any, stream: Any, last: np.ndarray
) -> Float[np.ndarray, "B n"]:
    """Input of a layer's MLP at the last tokens, for these weights of the layer."""
    path = _reading(model, layer)[0].path[2:-1]
    decoder = model.decoder.of_layer(layer)
    return np.asarray(replicated(_input(decoder, path, weights, stream, last)))


def readers(model: Any, layer: int) -> list[Array]:
    """Matrices of an MLP that read its input: all but those that read the neurons."""
    return [get_matrix(model.params, spec) for spec in _reading(model, layer)]


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


def _embedded(
    model: Any, rows: Sequence[Sequence[int]], name: str, batch_size: int
) -> Iterator[tuple[np.ndarray, Any, np.ndarray]]:
    """Yields numbers of rows, their embedded tokens, and the last token of each."""
    read = read_rows(name, rows, model.vocab_size)
    lengths = np.array([len(row) for row in read])
    if not 0 < lengths.min() <= lengths.max() <= model.context_length:
        got = f"{lengths.min()} to {lengths.max()}"
        wanted = f"rows of 1 to {model.context_length} tokens"
        raise ValueError(f"{name}: expected {wanted}, got {got}")
    switch = model.arch.switch
    if switch is not None and lengths.max() > switch:
        batch_size = 1  # the longest row of a batch decides its frequencies
    order = np.argsort(lengths, kind="stable")
    for first in range(0, len(read), batch_size):
        some = order[first : first + batch_size]
        # Lengths are rounded up, so that few programs are compiled.
        longest = -(-int(lengths[some[-1]]) // 32) * 32
        longest = min(longest, model.context_length)
        tokens = padded_tokens([read[i] for i in some], longest)
        stream = embed(model.decoder, model.params["embed"], tokens, np.int32(0))
        yield some, stream, lengths[some] - 1


def _block_of(model: Any, layer: int) -> tuple[Any, Any]:
    return model.decoder.of_layer(layer), model.params["layers"][layer]


def _reading(model: Any, layer: int) -> list[Any]:
    specs = module_matrices(model, layer, "mlp")
    return [spec for spec in specs if not spec.name.endswith("W_out")]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _input(decoder, path, weights, stream, last):
    z = decoder.run_block_inputs(weights, stream)[1][path].astype(jnp.float32)
    z = z.reshape(*stream.mask.shape, -1)
    return jnp.take_along_axis(z, last[:, None, None], axis=1)[:, 0]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _with_moments(decoder, paths, weights, stream):
    """Returns the next stream and the summed products of each matrix's inputs."""
    after, inputs = decoder.run_block_inputs(weights, stream)
    mask = stream.mask.reshape(-1)

    def moment(path):
        x = inputs[path].reshape(mask.size, -1).astype(jnp.float32)
        x = jnp.where(mask[:, None], x, 0)  # padding may be NaN
        return jnp.einsum("ti,tj->ij", x, x, precision="highest")

    return after, tuple(moment(path) for path in paths)
