"""Prunes one module of one layer: its matrices, the sizes kept, and the results."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import (
    check_choice,
    check_nonnegative_int,
    checked,
    finite,
    is_tracer,
)
from icltheory._names import PruningMethod, Rule
from icltheory._typing import Array, Float, PyTree
from icltheory.layered import (
    LayeredModel,
    MatrixSpec,
    check_layered,
    get_matrix,
    replace_matrix,
)
from icltheory.layered.matrices import in_module
from icltheory.linalg import SVD, svd
from icltheory.pruning.clipping import equal_values, magnitude_cutter
from icltheory.pruning.rates import (
    Rank,
    check_ranks,
    kept_of,
    rank_for_rate,
    strength_of,
)

__all__ = ["module_matrices", "prune_module"]

# Methods that reduce a decomposed matrix to a rank.
SPECTRAL = {"svd": SVD.truncate, "whitened": equal_values}
METHODS = ("svd", "magnitude", "whitened")


def module_matrices(
    model: LayeredModel, layer: int | None, module: str
) -> tuple[MatrixSpec, ...]:
    """Where the weight matrices of a module live; a matrix with two names, once.

    Matrices outside of the layers, such as a table of embeddings, are those of the
    model's method ``end_matrices()``.

    Args:
        layer: Number of the layer, from 0; ``None`` for matrices outside of the layers.
        module: Name of one matrix, such as ``"W_V"``; of a unit of several, such as
            ``"expert_3"``; ``"attn"``, ``"mlp"``, or ``"all"``; or several of these,
            joined by commas. Outside of the layers names of matrices alone.

    Example:
        >>> from icltheory.layered import LayeredStack
        >>> groups = (("W_V", "attn"), ("W_K", "attn"), ("W_Q", "attn"))
        >>> [spec.name for spec in module_matrices(LayeredStack(2, groups), 1, "attn")]
        ['W_V', 'W_K', 'W_Q']

    Source: Yao et al. (2024), section 2 and Algorithm 1.
    """
    check_layered(model)
    if layer is None:
        specs = end_matrices(model)
    else:
        check_nonnegative_int("layer", layer)
        if layer >= model.num_layers:
            last = model.num_layers - 1
            raise ValueError(f"layer: expected 0 to {last}, got {layer}")
        specs = model.matrices(layer)
    # Modules in order of size: all, groups, units, single matrices.
    known = [
        name for depth in range(4) for s in specs for name in s.modules[depth:][:1]
    ]
    for name in module.split(","):
        check_choice("module", name, tuple(dict.fromkeys(known)))
    first: dict[Any, MatrixSpec] = {}
    for spec in specs:
        if in_module(module, spec.group, spec.name):
            first.setdefault((spec.path, spec.rows), spec)
    return tuple(first.values())


def end_matrices(model: LayeredModel) -> tuple[MatrixSpec, ...]:
    """Returns the matrices of a model outside of its layers."""
    own = getattr(model, "end_matrices", None)
    if own is None:
        kind = type(model).__name__
        raise ValueError(
            f"layer: expected a number, as a {kind} has no matrices outside of its "
            "layers, got None"
        )
    return own()


def tied_to(model: LayeredModel, layer: int | None, module: str) -> tuple[str, ...]:
    """Returns other names of a module's matrices, under which they are also used."""
    if layer is not None:
        return ()
    paths = {spec.path for spec in module_matrices(model, layer, module)}
    return tuple(
        spec.name
        for spec in end_matrices(model)
        if spec.path in paths and not in_module(module, spec.group, spec.name)
    )


def prune_module(
    model: LayeredModel,
    params: PyTree,
    layer: int | None,
    module: str,
    rate: Any = None,
    *,
    rank: int | None = None,
    rule: Rule = "floor",
    at_least_one: bool = False,
    method: PruningMethod = "svd",
) -> PyTree:
    r"""Returns parameters with the matrices of a module pruned, at one rate or rank.

    At rate 0 every weight is unchanged to the bit. :func:`module_matrices` explains
    ``layer`` and ``module``.

    Args:
        rate: Clipping rate :math:`\xi`, in [0, 1); this or ``rank``.
        rank: Largest rank that is left, see :class:`Rank`; this or ``rate``.
        rule: How a rate becomes a rank, see :func:`rank_for_rate`.
        at_least_one: Whether a rank that rounds to 0 becomes 1 instead of an error.
        method: ``"svd"`` (:func:`clip`), ``"magnitude"`` (:func:`magnitude_prune`) or
            ``"whitened"`` (:func:`whiten`).

    Example:
        >>> import numpy as np
        >>> from icltheory import attention, layered
        >>> stack = attention.LinearAttentionStack(*[np.diag([2.0, 1.0])[None]] * 3)
        >>> new = prune_module(layered.LayeredStack.of(stack), stack, 0, "W_V", 0.5)
        >>> new.W_V[0].round(6).tolist(), new.W_K[0].tolist()
        ([[2.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]])

    Source: Yao et al. (2024), Algorithm 1, the function Clip.
    """
    cutting = Cutting(method, rule, at_least_one)
    return cutting.pruned(model, params, layer, module, strength_of(rate, rank))


@dataclasses.dataclass(frozen=True)
class Cutting:
    """A pruning method: how much a strength keeps, and how a matrix is pruned."""

    method: str
    rule: Rule
    at_least_one: bool

    def __post_init__(self):
        check_choice("method", self.method, METHODS)

    def kept(self, shape: tuple[int, ...], strength: Any) -> int:
        """Number of singular values or entries kept at a rate or a ``Rank``."""
        if self.method == "magnitude":
            if isinstance(strength, Rank):
                raise ValueError(
                    f"method: expected 'svd' or 'whitened' for {strength}, got "
                    "'magnitude'"
                )
            return kept_of(shape[0] * shape[1], strength, self.rule)
        if isinstance(strength, Rank):
            return min(strength.value, *shape)
        return rank_for_rate(shape, strength, self.rule, at_least_one=self.at_least_one)

    def kept_table(
        self, params: PyTree, specs: Sequence[MatrixSpec], strengths: Sequence[Any]
    ) -> list[list[int]]:
        """Sizes kept by each strength (rows) for each matrix (columns)."""
        matrices = jax.eval_shape(lambda p: [get_matrix(p, s) for s in specs], params)
        shapes = [matrix.shape for matrix in matrices]
        check_ranks(shapes, strengths)
        return [[self.kept(shape, one) for shape in shapes] for one in strengths]

    def pruned(
        self,
        model: LayeredModel,
        params: PyTree,
        layer: int | None,
        module: str,
        strength: Any,
    ) -> PyTree:
        """Parameters with a module pruned at a rate or to a ``Rank``."""
        specs = module_matrices(model, layer, module)
        others = tied_to(model, layer, module)
        if others:
            raise ValueError(
                f"module: expected a module without tied matrices, got {module}, whose "
                f"matrix is tied to {', '.join(others)}"
            )
        kept = self.kept_table(params, specs, [strength])[0]
        for spec, size in zip(specs, kept, strict=True):
            W = checked(spec.name, get_matrix(params, spec), finite)
            params = replace_matrix(params, spec, self.cutter(W)(size))
        return params

    def cutter(self, W: Float[Array, "m n"]) -> Callable[[Any], Array]:
        """Returns a function that prunes a matrix to any size, by one decomposition."""
        if self.method == "magnitude":
            return magnitude_cutter(W)
        return self.spectral_cutter(W, svd(W))

    def spectral_cutter(
        self, W: Float[Array, "m n"], parts: SVD
    ) -> Callable[[Any], Array]:
        """Returns a function from a rank to the matrix, by one decomposition."""
        cut_to = SPECTRAL[self.method]

        def cut(rank):
            clipped = cut_to(_first(parts, rank), rank).astype(W.dtype)
            return jnp.where(jnp.equal(rank, min(W.shape)), W, clipped)

        return cut


# Ranks are rounded up to a multiple of this, so that few programs are compiled. A
# smaller matrix has one program, since compiling takes longer than the product.
_RANKS = 256


def _first(parts: SVD, rank: Any) -> SVD:
    """Returns the leading part of a decomposition that a rank needs, rounded up."""
    full = parts.s.shape[-1]
    if is_tracer(rank) or not 0 <= rank <= full:
        return parts
    size = min(max(-(-int(rank) // _RANKS), 1) * _RANKS, full)
    return SVD(parts.U[..., :size], parts.s[..., :size], parts.Vt[..., :size, :])
