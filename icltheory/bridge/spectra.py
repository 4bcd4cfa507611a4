"""Singular values of a language model's matrices, their store, and rounding.

Condition numbers are computed in float64 on the host, and compared with those of random
matrices of the shape and with what the rounding of the weights leaves visible.
"""

import contextlib
import hashlib
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.typing import ArrayLike

from icltheory._checks import check_sequence, check_shape, finite
from icltheory._typing import Float
from icltheory.batching import Progress, reported
from icltheory.bridge.decompositions import (
    Exact,
    Randomised,
    SingularSystem,
    randomised_svd,
)
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.sharding import gathered
from icltheory.layered import get_matrix
from icltheory.models._files import named_file
from icltheory.pruning import module_matrices, random_condition_number

__all__ = [
    "ConditionNumber",
    "Exact",
    "Randomised",
    "SingularSystem",
    "SingularSystems",
    "condition_numbers",
    "randomised_svd",
    "rounding_noise",
    "stored_dtype",
]

_ROWS = 1024  # rows at once, so that a large matrix is never held in float64


# --- the store


class SingularSystems:
    """A folder of singular value decompositions, one file per matrix.

    The name of a file is the SHA-256 of the matrix's shape, dtype and bytes, and the
    ``method``: :class:`Exact` in float32 unless given. So tasks, seeds, rates and runs
    share results, and a changed weight is decomposed again. Files are written under
    another name and renamed, so several processes may share a folder. They hold plain
    arrays with checksums; nothing is kept in memory between calls.

    Example:
        >>> systems = SingularSystems(tempfile.mkdtemp())
        >>> W = np.diag([1.0, 3.0])
        >>> systems.of(W).s.tolist(), systems.singular_values(W).tolist()
        ([3.0, 1.0], [3.0, 1.0])
    """

    def __init__(
        self, folder: str | os.PathLike, method: Exact | Randomised | None = None
    ):
        self.folder = Path(folder)
        self.method = Exact() if method is None else method
        self.folder.mkdir(parents=True, exist_ok=True)

    def of(self, W: Float[ArrayLike, "*_shape"]) -> SingularSystem:
        """Decomposition of a matrix of any floating dtype by the store's method."""
        W = _checked(W)
        path = self._path(W, self.method.name)
        if not path.is_file():
            _write(path, self.method(W)._asdict())
        U, s, Vt = _read(path, "U", "s", "Vt")
        if U.shape + Vt.shape != (W.shape[0], s.size, s.size, W.shape[1]):
            raise _damaged(path, f"factors of shapes {U.shape} and {Vt.shape}")
        return SingularSystem(U, s, Vt)

    def singular_values(self, W: Float[ArrayLike, "*_shape"]) -> np.ndarray:
        """The min(m, n) singular values, descending, in float64 by NumPy."""
        W = _checked(W)
        path = self._path(W, Exact("float64").name)
        if not path.is_file():
            path = self._path(W, "values")
        if not path.is_file():
            _write(path, {"s": _values(W)})
        (s,) = _read(path, "s")
        if s.shape != (min(W.shape),):
            raise _damaged(path, f"{s.shape} singular values")
        return s

    def _path(self, W: np.ndarray, method: str) -> Path:
        digest = hashlib.sha256(f"{W.dtype.name} {W.shape} ".encode())
        digest.update(W.reshape(-1).view(np.uint8).data)
        return self.folder / f"{digest.hexdigest()}.{method}.npz"


def _values(W: np.ndarray) -> np.ndarray:
    return np.linalg.svd(W.astype(np.float64), compute_uv=False)


def _checked(W) -> np.ndarray:
    check_shape("W", W, ("m", "n"))
    W = np.ascontiguousarray(W)
    finite("W", W)
    return W


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".writing_", dir=path.parent)
    try:
        with named_file(path), os.fdopen(descriptor, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _read(path: Path, *names: str) -> list[np.ndarray]:
    """Reads the selected arrays of a file."""
    try:
        # The file is opened here, since NumPy does not close an unreadable file.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return [file[name] for name in names]
    except Exception as error:  # readers of the format raise many kinds
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: Path, got: str) -> ValueError:
    return ValueError(f"{path}: expected a singular system, got {got}")


# --- condition numbers


class ConditionNumber(NamedTuple):
    r"""Condition number of one matrix, with its reference values.

    Attributes:
        module: ``"attn"`` or ``"mlp"``.
        condition_number: :math:`s_1 / s_k`; infinite if the last value is zero.
        null: Median condition number of Gaussian matrices of that shape, (out, in).
        null_ratio: The first over the second.
        dtype: Narrowest dtype that represents every entry: that of the checkpoint,
            whatever it was loaded in.
        ceiling: :math:`s_1 / (2 \sigma_E \sqrt{|m - n| + 1})` with the rounding noise
            :math:`\sigma_E` of that dtype: rounding an exactly singular matrix gives
            a condition number above it, except for one square matrix in twenty.
        resolved: Whether the condition number is below it, and so more than rounding.
    """

    layer: int
    module: str
    matrix: str
    condition_number: float
    null: float
    null_ratio: float
    shape: tuple[int, int]
    dtype: str
    ceiling: float
    resolved: bool
    singular_values: np.ndarray


def condition_numbers(
    model: LanguageModel,
    cache: SingularSystems | None = None,
    layers: Sequence[int] | None = None,
    module: str = "all",
    progress: Progress | None = None,
) -> tuple[ConditionNumber, ...]:
    r"""Computes the condition numbers of a model's matrices in float64 on the host.

    .. math:: \kappa(W) = s_1 / s_{\min(m, n)}

    of each whole matrix, heads together, layer by layer. Tall random matrices have
    smaller condition numbers than square ones: compare ``null_ratio``. Cost
    O(m n min(m, n)) for each matrix.

    Args:
        cache: Where singular values are looked up and stored.
        layers: Numbers of the layers; all if ``None``.
        module: One matrix, such as ``"W_V"``, or ``"attn"``, ``"mlp"``, ``"all"``.
        progress: Called after each matrix; see :mod:`icltheory.batching`.

    Example:
        >>> import jax
        >>> from icltheory.bridge import Architecture, Decoder
        >>> arch = Architecture(family="gpt2", vocab_size=9, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> decoder = Decoder(arch)
        >>> model = LanguageModel(decoder, decoder.init(jax.random.key(0)))
        >>> rows = condition_numbers(model, module="mlp")
        >>> [(row.layer, row.matrix, row.dtype, row.resolved) for row in rows][:2]
        [(0, 'W_in', 'float32', True), (0, 'W_out', 'float32', True)]

    Source: Yao et al. (2024), Figure 3.
    """
    numbers = range(model.num_layers) if layers is None else layers
    check_sequence("layers", numbers)
    pairs = [(l, spec) for l in numbers for spec in module_matrices(model, l, module)]
    return tuple(
        _row(layer, spec, gathered(get_matrix(model.params, spec), 0), cache)
        for layer, spec in reported(
            pairs, progress, lambda pair: f"layer {pair[0]}, {pair[1].name}"
        )
    )


def _row(
    layer: int, spec: Any, W: Any, cache: SingularSystems | None
) -> ConditionNumber:
    finite(spec.name, W)
    s = _values(np.asarray(W)) if cache is None else cache.singular_values(W)
    (m, n), null = W.shape, random_condition_number(W.shape)
    floor = 2 * rounding_noise(W) * math.sqrt(abs(m - n) + 1)
    condition = float(s[0] / s[-1]) if s[-1] > 0 else math.inf
    return ConditionNumber(
        layer=layer,
        module=spec.group,
        matrix=spec.name,
        condition_number=condition,
        null=null,
        null_ratio=condition / null,
        shape=(m, n),
        dtype=stored_dtype(W),
        ceiling=float(s[0] / floor),
        resolved=bool(s[-1] > floor),
        singular_values=s,
    )


# --- rounding


def stored_dtype(W: Float[ArrayLike, "*_shape"]) -> str:
    """Returns the narrowest dtype that represents every entry exactly.

    One of ``"bfloat16"``, ``"float16"``, ``"float32"`` and ``"float64"``. A checkpoint
    in half precision that was loaded in float32 still counts as half precision, since
    loading does not restore the bits that were rounded away.

    Example:
        >>> W = jnp.array([[0.1, 0.2]], jnp.bfloat16).astype(jnp.float32)
        >>> stored_dtype(W), stored_dtype(jnp.array([[0.1, 0.2]], jnp.float32))
        ('bfloat16', 'float32')
    """
    check_shape("W", W, ("m", "n"))
    W = np.asarray(W)
    kinds = map(np.dtype, (ml_dtypes.bfloat16, np.float16, np.float32))
    return next((kind.name for kind in kinds if _holds(kind, W)), "float64")


def _holds(kind, W):
    with np.errstate(over="ignore"):
        return all(
            np.array_equal(rows.astype(kind).astype(W.dtype), rows)
            for rows in np.array_split(W, -(-W.shape[0] // _ROWS))
        )


def rounding_noise(W: Float[ArrayLike, "*_shape"], dtype: str | None = None) -> float:
    r"""Root mean square rounding error of a matrix's entries in their dtype.

    An entry has an error of up to half the spacing :math:`u_{ij}` of numbers around it,
    almost uniformly distributed, so that the root mean square of the errors E is

    .. math:: \sigma_E = \Big( \frac{1}{12\, m n} \sum_{ij} u_{ij}^2 \Big)^{1/2} .

    An isolated singular value moves by :math:`u^\top E v`, about :math:`\sigma_E`; one
    that is zero becomes about :math:`\sigma_E \sqrt{|m - n| + 1}`. A bound for the
    worst errors, such as :math:`\epsilon s_1`, is far larger: in bfloat16 it would
    leave no condition number above 128. The ``dtype`` is :func:`stored_dtype` unless
    given.

    Example:
        >>> W = jnp.ones((2, 2), jnp.float32)
        >>> round(rounding_noise(W, "bfloat16") * 12**0.5, 6)  # the spacing at 1
        0.007812

    Source: Stewart and Sun (1990), Matrix Perturbation Theory, section V.4.
    """
    check_shape("W", W, ("m", "n"))
    finite("W", W)
    W = np.asarray(W)
    limits = jnp.finfo(dtype or stored_dtype(W))
    total = 0.0
    for start in range(0, W.shape[0], _ROWS):
        fractions, exponents = np.frexp(W[start : start + _ROWS].astype(np.float64))
        spacing = np.ldexp(float(limits.eps) * (fractions != 0), exponents - 1)
        spacing = np.maximum(spacing, float(limits.smallest_subnormal))
        total += float(np.sum(spacing**2))
    return float(np.sqrt(total / (12 * W.size)))
