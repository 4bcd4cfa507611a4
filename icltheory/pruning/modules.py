"""Pruning one module of one layer: which matrices, how many to keep, the new ones."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_choice, check_finite, check_nonnegative_int
from icltheory._named_errors import named_errors
from icltheory._names import PruningMethod, Rule
from icltheory._typing import Array, Float, PyTree
from icltheory.layered import (
    LayeredModel,
    MatrixSpec,
    check_layered,
    get_matrix,
    replace_matrix,
)
from icltheory.linalg import SVD, svd
from icltheory.pruning.magnitude import magnitude_cutter
from icltheory.pruning.rates import kept_of, rank_for_rate
from icltheory.pruning.whitening import equal_values

__all__ = ["module_matrices", "prune_module"]

# Ways to cut a decomposed matrix to a rank.
SPECTRAL = {"svd": SVD.truncate, "whitened": equal_values}
METHODS = ("svd", "magnitude", "whitened")


@named_errors
def module_matrices(
    model: LayeredModel, layer: int, module: str
) -> tuple[MatrixSpec, ...]:
    """The weight matrices of a module, by its name.

    Args:
        model: The layered model.
        layer: Number of the layer, from 0.
        module: Name of one matrix, such as ``"W_V"``; of a unit of several, such as
            ``"expert_3"``; or ``"attn"``, ``"mlp"``, or ``"all"``.

    Returns:
        Where each of them lives.

    Raises:
        ValueError: If there is no such layer, or no such matrix or group in it.

    Example:
        >>> from icltheory.layered import LayeredStack
        >>> groups = (("W_V", "attn"), ("W_K", "attn"), ("W_Q", "attn"))
        >>> [spec.name for spec in module_matrices(LayeredStack(2, groups), 1, "attn")]
        ['W_V', 'W_K', 'W_Q']

    References:
        Yao et al. (2024), section 2 and Algorithm 1.
        Verified by ``tests/pruning/test_modules.py``.
    """
    check_layered(model)
    check_nonnegative_int("layer", layer)
    if not 0 <= layer < model.num_layers:
        raise ValueError(f"layer: expected 0 to {model.num_layers - 1}, got {layer}")
    specs = model.matrices(layer)
    # Wide modules first: all, groups, units, single matrices.
    known = [
        name for depth in range(4) for s in specs for name in s.modules[depth:][:1]
    ]
    check_choice("module", module, tuple(dict.fromkeys(known)))
    return tuple(spec for spec in specs if module in spec.modules)


@named_errors
def prune_module(
    model: LayeredModel,
    params: PyTree,
    layer: int,
    module: str,
    rate: Any,
    *,
    rule: Rule = "floor",
    at_least_one: bool = False,
    method: PruningMethod = "svd",
) -> PyTree:
    r"""Prunes all matrices of a module at one rate.

    Args:
        model: The layered model.
        params: Its parameters; left as they are.
        layer: Number of the layer, from 0.
        module: Matrix or group, see :func:`module_matrices`.
        rate: Clipping rate :math:`\xi`, in [0, 1).
        rule: How a rate becomes a rank: ``"floor"``, ``"nearest"`` or ``"ceil"``.
        at_least_one: Whether a rank that rounds to 0 becomes 1 instead of an error.
        method: ``"svd"``, ``"magnitude"`` or ``"whitened"``, see
            :func:`~icltheory.pruning.whiten`.

    Returns:
        New parameters; at rate 0 every weight is unchanged to the bit.

    Raises:
        ValueError: If a name, the layer or the rate is out of range, or a weight is not
            finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.attention import LinearAttentionStack
        >>> from icltheory.layered import LayeredStack
        >>> W = jnp.diag(jnp.array([2.0, 1.0]))[None]
        >>> stack = LinearAttentionStack(W, W, W)
        >>> new = prune_module(LayeredStack.of(stack), stack, 0, "W_V", 0.5)
        >>> new.W_V[0].round(6).tolist(), new.W_K[0].tolist()
        ([[2.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]])

    References:
        Yao et al. (2024), Algorithm 1, the function Clip.
        Verified by ``tests/pruning/test_modules.py``.
    """
    cutting = Cutting(method, rule, at_least_one)
    for spec in module_matrices(model, layer, module):
        W = get_matrix(params, spec)
        check_finite(spec.name, W)
        cut = cutting.cutter(W)
        params = replace_matrix(params, spec, cut(cutting.kept(W.shape, rate)))
    return params


@dataclasses.dataclass(frozen=True)
class Cutting:
    """A way to prune: how much a rate keeps, and how a matrix is cut to that much."""

    method: str
    rule: Rule
    at_least_one: bool

    def __post_init__(self):
        check_choice("method", self.method, METHODS)

    def kept(self, shape: tuple[int, ...], rate: Any) -> int:
        """Singular values or entries that a rate keeps."""
        if self.method == "magnitude":
            return kept_of(shape[0] * shape[1], rate, self.rule)
        return rank_for_rate(shape, rate, self.rule, at_least_one=self.at_least_one)

    def kept_table(
        self, params: PyTree, specs: Sequence[MatrixSpec], rates: Sequence[Any]
    ) -> list[list[int]]:
        """What each rate, in rows, keeps of each matrix, in columns."""
        shapes = [_shape(params, spec) for spec in specs]
        return [[self.kept(shape, rate) for shape in shapes] for rate in rates]

    def cutter(self, W: Float[Array, "m n"]) -> Callable[[Any], Array]:
        """Decomposes or sorts once; the result cuts to any size, also a traced one."""
        if self.method == "magnitude":
            return magnitude_cutter(W)
        return self.spectral_cutter(W, svd(W))

    def spectral_cutter(
        self, W: Float[Array, "m n"], parts: SVD
    ) -> Callable[[Any], Array]:
        """One decomposition for every rank; the full rank is the unchanged matrix."""
        cut_to = SPECTRAL[self.method]

        def cut(rank):
            clipped = cut_to(parts, rank).astype(W.dtype)
            return jnp.where(jnp.equal(rank, min(W.shape)), W, clipped)

        return cut


def _shape(params, spec):
    return jax.eval_shape(lambda tree: get_matrix(tree, spec), params).shape
