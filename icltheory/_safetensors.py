"""Reads and writes safetensors files, which are memory-mapped for reading.

A file is a length in 8 bytes, a JSON header of names, dtypes, shapes and offsets, and
the numbers themselves. Everything is checked before the first tensor is read, so that a
file cut short or damaged is reported and not read wrongly.
"""

import json
import math
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from icltheory._files import named_file, refuse_pointer

_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_LONGEST_HEADER = 100 * 2**20
# What training programs put before every name.
_WRAPPED = re.compile(r"^((base_model\.model|language_model|module|_orig_mod)\.)+")


def unwrapped(names: Iterable[str]) -> dict[str, str]:
    """Returns the names of a file by what they are without the prefix of a program."""
    stored = {_WRAPPED.sub("", name): name for name in names}
    return stored if len(stored) == len(set(names)) else {name: name for name in names}


class Where(NamedTuple):
    """Dtype, shape and offset of one tensor in a file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int


class SafetensorsFile:
    """One safetensors file, with its tensors by name."""

    def __init__(self, path: Path):
        self.path = path
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8:
                raise self._broken(f"at least 8 bytes, got {size}")
            refuse_pointer(path)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.tensors = dict(self._read_header(size))

    def read(self, name: str) -> np.ndarray:
        """Returns a view of a tensor in the file."""
        dtype, shape, start = self.tensors[name]
        count = math.prod(shape)
        return np.frombuffer(self._map, dtype, count, start).reshape(shape)

    def release(self, name: str) -> None:
        """Releases the memory pages of a tensor; its views stay valid.

        A view that is used again reads its part of the file again.
        """
        if not hasattr(self._map, "madvise"):
            return
        dtype, shape, start = self.tensors[name]
        first = start - start % mmap.PAGESIZE
        length = start + math.prod(shape) * dtype.itemsize - first
        if length:
            self._map.madvise(mmap.MADV_DONTNEED, first, length)

    def _read_header(self, size: int) -> Iterator[tuple[str, Where]]:
        length = int.from_bytes(self._map[:8], "little")
        if length > min(size - 8, _LONGEST_HEADER):
            raise self._broken(f"a header of {length} bytes, got a file of {size}")
        try:
            header = json.loads(self._map[8 : 8 + length])
            entries = sorted(
                ((name, *_entry(value)) for name, value in header.items()
                 if name != "__metadata__"),
                key=lambda entry: entry[3:],
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._broken(f"a header of tensors, got {_short(error)}") from None
        end = 0
        for name, code, shape, first, last in entries:
            if code not in _DTYPES:
                known = ", ".join(_DTYPES)
                kind = " (quantised weights are not supported)" * code.startswith("F8")
                raise self._broken(
                    f"a dtype of {known} for {name[:80]}, got {code[:20]!r}{kind}"
                )
            bytes_ = math.prod(shape) * _DTYPES[code].itemsize
            if first != end or last - first != bytes_:
                raise self._broken(
                    f"{name} of shape {shape} at bytes {end} to {end + bytes_}, "
                    f"got {first} to {last}"
                )
            end = last
            yield name, Where(_DTYPES[code], shape, 8 + length + first)
        if 8 + length + end != size:
            raise self._broken(f"{8 + length + end} bytes, got {size}")

    def _broken(self, what: str) -> ValueError:
        return ValueError(f"{self.path}: expected {what}")


def _short(error: Exception) -> str:
    """Shortens an error message, without the bytes of a decoding error."""
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 at byte {8 + error.start}"
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= 120 else f"{text[:117]}..."


def _entry(value: Mapping[str, Any]) -> tuple[str, tuple[int, ...], int, int]:
    shape, (first, last) = tuple(value["shape"]), value["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, first, last)):
        raise ValueError(f"sizes {shape}, {(first, last)}")
    return str(value["dtype"]), shape, first, last


def write_safetensors(
    path: Path,
    tensors: Iterable[tuple[str, tuple[int, ...], Any]],
    read: Any,
) -> None:
    """Writes a file atomically, tensor by tensor.

    ``tensors`` are name, shape and dtype of each, in the order of writing; ``read``
    returns the array of a name, and is called once for each in that order.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end, names = 0, []
    for name, shape, dtype in tensors:
        start, kind = end, np.dtype(dtype)
        end += math.prod(shape) * kind.itemsize
        code = _CODES[kind]
        header[name] = {
            "dtype": code,
            "shape": list(shape),
            "data_offsets": [start, end],
        }
        names.append(name)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with named_file(path), aside.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                array = np.asarray(read(name), order="C")  # a scalar keeps shape ()
                stated = header[name]
                kind, shape = stated["dtype"], stated["shape"]
                if (_CODES[array.dtype], list(array.shape)) != (kind, shape):
                    raise ValueError(
                        f"{name}: expected {kind} {shape}, "
                        f"got {array.dtype} {list(array.shape)}"
                    )
                file.write(array.reshape(-1).view(np.uint8).data)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
