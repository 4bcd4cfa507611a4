"""Checkpoints that are written atomically and checked when read."""

import hashlib
import itertools
import json
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from icltheory._checks import check_positive_int
from icltheory.models._files import named_file

__all__ = ["Checkpoints", "Restored"]

_NAME = re.compile(r"step_(\d+)(?:\.(\d+))?")
_MANIFEST = "manifest.json"
_LEAVES = int, float, np.ndarray, np.generic, jax.Array


class Restored(NamedTuple):
    """Result of :meth:`Checkpoints.restore`: state, what was saved beside it, damage.

    The state is ``None`` where there is no checkpoint yet; ``damaged`` has one line for
    each newer checkpoint that could not be used.
    """

    state: Any
    extra: Any
    damaged: tuple[str, ...]


class Checkpoints:
    """A folder of checkpoints ``step_NNNNNNNN`` of a run.

    A checkpoint holds the state (by orbax), one JSON value, and a manifest with the
    digest of every file. It is written under another name and then renamed, so that
    it is there whole or not at all. Nothing that exists is overwritten, and a damaged
    checkpoint is named and left in place. The newest ``keep`` are kept. With several
    processes all of them call :meth:`save` and :meth:`restore`.

    Example:
        >>> import tempfile, jax.numpy as jnp
        >>> store = Checkpoints(tempfile.mkdtemp())
        >>> path = store.save(3, {"w": jnp.ones(2)}, {"losses": [0.5]})
        >>> restored = store.restore({"w": jnp.zeros(2)})
        >>> restored.state["w"].tolist(), restored.extra
        ([1.0, 1.0], {'losses': [0.5]})
    """

    def __init__(self, folder: str | os.PathLike, keep: int = 3):
        check_positive_int("keep", keep)
        self.folder = Path(folder).absolute()
        # Orbax reads its path as a glob pattern, and would find nothing there.
        if re.search(r"\[.*\]", str(self.folder)):
            expected = "a path without [ and ]"
            raise ValueError(f"folder: expected {expected}, got {self.folder}")
        self.keep = keep
        self._damaged: set[str] = set()
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, state: Any, extra: Any = None) -> Path:
        """Writes a checkpoint, removes those beyond the newest ``keep``.

        ``extra`` is a JSON value, in which numbers of NumPy and JAX are numbers.
        Returns the checkpoint's folder.
        """
        # An error within Orbax would leave threads that write.
        leaves = jax.tree_util.tree_leaves_with_path(state)
        for path, leaf in leaves or [((), None)]:
            if not path or not isinstance(leaf, _LEAVES):
                where, kind = jax.tree_util.keystr(path), type(leaf).__name__
                raise ValueError(f"state{where}: expected a tree of arrays, got {kind}")
        try:
            text = json.dumps(extra, default=lambda value: value.item())
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"extra: expected a JSON value, got {error}") from None
        name, first = f"step_{step:08d}", jax.process_index() == 0
        names = itertools.chain([name], (f"{name}.{i}" for i in itertools.count(1)))
        name = next(one for one in names if not (self.folder / one).exists())
        target, aside = self.folder / name, self.folder / f".writing_{name}"
        _sync(f"{name} begins")
        if first:
            shutil.rmtree(aside, ignore_errors=True)
        _sync(f"{name} is clear")
        try:
            with named_file(target):
                _write_state(aside / "state", state)
                if first:
                    (aside / "extra.json").write_text(text)
                    digests = json.dumps(_digests(aside), indent=1)
                    (aside / _MANIFEST).write_text(digests)
                    aside.rename(target)
        except BaseException:
            if first:
                shutil.rmtree(aside, ignore_errors=True)
            raise
        if first:
            self._remove_old()
        _sync(f"{name} is written")
        return target

    def restore(self, like: Any) -> Restored:
        """Restores the newest intact checkpoint.

        ``like`` is a state with the structure, shapes, dtypes and shardings to read.
        """
        damaged = []
        for name in reversed(self._names()):
            fault = _fault(self.folder / name)
            if fault is None:
                return Restored(*self._read(name, like), tuple(damaged))
            self._damaged.add(name)
            damaged.append(f"checkpoint {name} is damaged: {fault}")
        if damaged:
            raise ValueError(
                f"checkpoints: no intact checkpoint in {self.folder}: "
                + "; ".join(damaged)
            )
        return Restored(None, None, ())

    def _read(self, name: str, like: Any) -> tuple[Any, Any]:
        path = self.folder / name
        ocp = _orbax()
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        front = f"checkpoint {name}: does not match the state of this run"
        with ocp.StandardCheckpointer() as reader:
            stored = _arrays(reader.metadata(path / "state").item_metadata.tree)
            wanted = _arrays(abstract)
            for leaf, (shape, kind) in wanted.items():
                # Orbax reports this from threads of its own, at length, or rounds.
                other, had = stored.get(leaf, (shape, kind))
                said = f"shape {shape}, got {other}" if other != shape else ""
                if not said and np.promote_types(kind, had) != kind:
                    said = f"{kind}, got {had}, which it cannot hold"
                if said:
                    raise ValueError(f"{front}: {leaf}: expected {said}")
            try:
                state = reader.restore(path / "state", abstract)
            except (KeyError, ValueError) as error:
                said = str(error).strip().splitlines()[0]
                only = sorted(stored.keys() ^ wanted.keys())
                if only:
                    said = f"only one of them has {', '.join(only[:5])}"
                raise ValueError(f"{front}: {said}") from error
        return state, json.loads((path / "extra.json").read_text())

    def _names(self) -> list[str]:
        found = [m for p in self.folder.iterdir() if (m := _NAME.fullmatch(p.name))]
        found.sort(key=lambda m: (int(m[1]), int(m[2] or 0)))
        return [m[0] for m in found]

    def _remove_old(self) -> None:
        whole = [name for name in self._names() if name not in self._damaged]
        for name in whole[: -self.keep]:
            shutil.rmtree(self.folder / name)


def _arrays(tree: Any) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shapes and dtypes of the arrays of a tree, or of its metadata, by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(
        tree, is_leaf=lambda leaf: hasattr(leaf, "shape")
    )
    found = {}
    for path, leaf in leaves:
        leaf = leaf if hasattr(leaf, "shape") else np.asarray(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        found[name] = tuple(leaf.shape), np.dtype(leaf.dtype)
    return found


def _write_state(path: Path, state: Any) -> None:
    """Writes the arrays of a checkpoint; an error of the system is an OSError."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.CRITICAL)  # Orbax reports errors from threads, at length
    try:
        with _orbax().StandardCheckpointer() as writer:
            writer.save(path, state)
    except Exception as error:
        found = re.search(r"os_error_code='(\d+)'", str(error))
        if found is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1]))) from None
    finally:
        log.setLevel(level)


def _orbax() -> Any:
    """Imports Orbax, which is delayed since it is slow."""
    import orbax.checkpoint

    return orbax.checkpoint


def _sync(name: str) -> None:
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != _MANIFEST)
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in files
    }


def _fault(folder: Path) -> str | None:
    """Describes what is wrong with a checkpoint; empty if it is intact."""
    try:
        expected = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError):
        expected = None
    if not isinstance(expected, dict):
        return f"no readable {_MANIFEST}"
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return f"{name} was changed or cut ({path.stat().st_size} bytes)"
    return None
