"""Stores singular value decompositions on disk under a hash of their matrix."""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np
from jax.typing import ArrayLike

from icltheory._checks import check_shape, finite
from icltheory._files import named_file
from icltheory._typing import Float
from icltheory.bridge.spectra.methods import Exact, Randomised, SingularSystem

__all__ = ["SingularSystems"]

_VALUES = "values"


class SingularSystems:
    """A folder of singular value decompositions, one file per matrix.

    A file is named by the SHA-256 of the matrix's shape, dtype and bytes and by the
    method, so that tasks, seeds, rates and runs find what one of them computed, and a
    changed weight finds nothing. Files are written aside and renamed; several processes
    may share a folder. They hold plain arrays, each with a checksum, and nothing is
    kept in memory between calls.

    Args:
        folder: Where they are kept; made if absent.
        method: How systems are computed: :class:`Exact` in float32 if left out, or
            :class:`Randomised`.

    Returns:
        The store.

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
        """Returns the decomposition of a matrix by the store's method.

        Args:
            W: The matrix, of any floating dtype.

        Returns:
            ``(U, s, Vt)``.
        """
        W = _checked(W)
        path = self._path(W, self.method.name)
        if not path.is_file():
            _write(path, self.method(W)._asdict())
        U, s, Vt = _read(path, "U", "s", "Vt")
        if U.shape + Vt.shape != (W.shape[0], s.size, s.size, W.shape[1]):
            raise _damaged(path, f"factors of shapes {U.shape} and {Vt.shape}")
        return SingularSystem(U, s, Vt)

    def singular_values(self, W: Float[ArrayLike, "*_shape"]) -> np.ndarray:
        """Returns the singular values only, in float64 by NumPy on the host.

        Args:
            W: The matrix, of any floating dtype.

        Returns:
            The min(m, n) values, descending.
        """
        W = _checked(W)
        path = self._path(W, Exact("float64").name)
        if not path.is_file():
            path = self._path(W, _VALUES)
        if not path.is_file():
            s = np.linalg.svd(W.astype(np.float64), compute_uv=False)
            _write(path, {"s": s})
        (s,) = _read(path, "s")
        if s.shape != (min(W.shape),):
            raise _damaged(path, f"{s.shape} singular values")
        return s

    def _path(self, W: np.ndarray, method: str) -> Path:
        digest = hashlib.sha256(f"{W.dtype.name} {W.shape} ".encode())
        digest.update(W.reshape(-1).view(np.uint8).data)
        return self.folder / f"{digest.hexdigest()}.{method}.npz"


def _checked(W) -> np.ndarray:
    check_shape("W", W, ("m", "n"))
    W = np.ascontiguousarray(W)
    finite("W", W)
    return W


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".writing_", dir=path.parent)
    aside = Path(name)
    try:
        with named_file(path), os.fdopen(descriptor, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(aside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()


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
