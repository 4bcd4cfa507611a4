"""Named weight matrices inside a parameter pytree: locating, reading, replacing."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from icltheory._checks import check_choice, check_shape, real
from icltheory._typing import Array, Float, PyTree


@dataclasses.dataclass(frozen=True)
class MatrixSpec:
    """The path of one weight matrix in the parameters, and how it is stored.

    Args:
        name: Name of the matrix within the layer, such as ``"W_V"``; what stands before
            a dot, as in ``"expert_3.W_in"``, names a unit that is pruned as one.
        group: ``"attn"`` or ``"mlp"``; ``"ends"`` outside of the layers.
        path: Keys, attribute names and positions down to a leaf of the parameters, then
            indices into its leading axes: ``("W_V", 3)`` is layer 3 of a leaf.
        transposed: Whether the stored array is (in, out), as Flax kernels are.
        shape: The (out, in) shape, if more than two axes are stored, such as (in,
            heads, head_dim).
        rows: First output row and the one after the last, of a fused matrix such as a
            joint query-key-value kernel.

    Example:
        >>> spec = MatrixSpec("W_Q", "attn", ("h_0", "attn", "q", "kernel"), True)
        >>> spec.path[-1], spec.transposed
        ('kernel', True)

    Source: Yao et al. (2024), section 3.4, the modules that are pruned.
    """

    name: str
    group: str
    path: tuple[str | int, ...]
    transposed: bool = False
    shape: tuple[int, int] | None = None
    rows: tuple[int, int] | None = None

    def __post_init__(self):
        check_choice("group", self.group, ("attn", "mlp", "ends"))

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules that contain the matrix, its own name last."""
        return modules_of(self.group, self.name)


def modules_of(group: str, name: str) -> tuple[str, ...]:
    """Returns the modules of a matrix: all, its group, its unit if any, and itself."""
    if group == "ends":
        return (name,)
    unit = name.rpartition(".")[0]
    return ("all", group, unit, name) if unit else ("all", group, name)


def in_module(module: str, group: str, name: str) -> bool:
    """Whether a matrix belongs to a module, or to one of several joined by commas."""
    return not set(module.split(",")).isdisjoint(modules_of(group, name))


def get_matrix(params: PyTree, spec: MatrixSpec) -> Float[Array, "out in"]:
    """Reads one weight matrix in the (out, in) form of the papers, ``W @ h``.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"dense": {"kernel": jnp.array([[1.0, 2.0, 3.0]])}}
        >>> spec = MatrixSpec("W_in", "mlp", ("dense", "kernel"), transposed=True)
        >>> get_matrix(params, spec).tolist()
        [[1.0], [2.0], [3.0]]
    """
    leaf, index = _located(params, spec)
    W = _to_matrix(leaf[index], spec)
    return W if spec.rows is None else W[_rows(spec, len(W))]


def replace_matrix(
    params: PyTree, spec: MatrixSpec, W: Float[ArrayLike, "_out _in"]
) -> PyTree:
    """Returns parameters with one weight matrix replaced by an (out, in) one.

    It is cast to the stored dtype; the other leaves are shared.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.zeros((2, 1)), "bias": jnp.ones(1)}
        >>> spec = MatrixSpec("W_in", "mlp", ("kernel",), transposed=True)
        >>> new = replace_matrix(params, spec, jnp.array([[1.0, 2.0]]))
        >>> new["kernel"].tolist(), params["kernel"].tolist()
        ([[1.0], [2.0]], [[0.0], [0.0]])
    """
    leaf, index = _located(params, spec)
    stored, new = leaf[index], jnp.asarray(real("W", W), leaf.dtype)
    old = _to_matrix(stored, spec)
    rows = _rows(spec, len(old))
    check_shape(spec.name, new, old[rows].shape)
    whole = new if spec.rows is None else old.at[rows].set(new)
    stored = (whole.T if spec.transposed else whole).reshape(stored.shape)
    changed = leaf.at[index].set(stored) if index else stored
    return with_leaf(params, spec.path, changed)


def _located(params, spec):
    """Returns the leaf on the path and the indices into it."""
    node, index = params, spec.path
    while index and not jax.tree_util.all_leaves([node]):
        entries, _ = _children(node)
        found = [child for key, child in entries if key == index[0]]
        node, index = (found[0], index[1:]) if found else (None, ())
    if not hasattr(node, "shape"):
        kind = type(params).__name__
        raise ValueError(
            f"path: expected the path of a leaf of params, a {kind}, got {spec.path}"
        )
    _check_index(index, node.shape)
    leaf = jnp.asarray(node)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise ValueError(f"{spec.name}: expected floating weights, got {leaf.dtype}")
    return leaf, index


def with_leaf(node, path, leaf):
    """Returns a tree with the leaf on the path replaced; other leaves are shared."""
    if jax.tree_util.all_leaves([node]):
        return leaf
    entries, treedef = _children(node)
    return treedef.unflatten(
        with_leaf(child, path[1:], leaf) if key == path[0] else child
        for key, child in entries
    )


def _children(node):
    """Returns keys and values one level below a node, and its structure."""
    entries, treedef = jax.tree_util.tree_flatten_with_path(
        node, is_leaf=lambda below: below is not node
    )
    return [(_plain(key), child) for (key,), child in entries], treedef


def _check_index(index, shape):
    """Raises for an index out of range, which JAX would clamp or ignore."""
    ok = len(index) <= len(shape)
    for i, size in zip(index, shape, strict=False):
        ok = ok and isinstance(i, (int, np.integer)) and -size <= i < size
    if not ok:
        raise ValueError(
            f"path: expected indices into a leaf of params, of shape {shape}, "
            f"got {index}"
        )


def _rows(spec, size):
    """Rows of the stored matrix; all of them unless some are named."""
    first, stop = (0, size) if spec.rows is None else spec.rows
    if not 0 <= first < stop <= size and spec.rows is not None:
        raise ValueError(f"rows: expected 0 <= first < last <= {size}, got {spec.rows}")
    return slice(first, stop)


def _plain(entry: Any) -> Any:
    """Converts one entry of a JAX key path to a key, index or attribute name."""
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return entry


def _to_matrix(stored, spec):
    shape = stored.shape if spec.shape is None else spec.shape
    if spec.shape is not None and spec.transposed:
        shape = shape[::-1]
    if len(shape) != 2 or shape[0] * shape[1] != stored.size:
        raise ValueError(f"{spec.name}: expected a matrix, got shape {stored.shape}")
    matrix = stored.reshape(shape)
    return matrix.T if spec.transposed else matrix
