"""Reads and writes safetensors files, which are memory-mapped for reading.

The package ``safetensors`` checks the header before the first tensor is read, so that a
file that is cut short or damaged is reported and not read wrongly. It copies what it
reads and writes whole files; here a tensor is a view of the mapped file, and is written
as soon as it is computed.
"""

import dataclasses
import json
import math
import mmap
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from icltheory.models._files import named_file, refuse_pointer

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
# What training programs put before every name.
_WRAPPED = re.compile(r"^((base_model\.model|language_model|module|_orig_mod)\.)+")


def unwrapped(names: Iterable[str]) -> dict[str, str]:
    """Returns the names of a file by what they are without the prefix of a program."""
    stored = {_WRAPPED.sub("", name): name for name in names}
    return stored if len(stored) == len(set(names)) else {name: name for name in names}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An array of a file or of a program, which is read or computed on demand.

    Attributes:
        shape: Its shape.
        dtype: Its dtype.
        read: Returns the array.
        release: Frees the memory that it takes, such as pages of its file.
        file: The file, for messages.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]
    release: Callable[[], Any] = lambda: None
    file: Path | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.read())


def open_safetensors(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a file by name; each is read as a view of the file."""
    refuse_pointer(path)
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise ImportError(
            f"{path}: reading it needs `pip install icltheory[llm]`"
        ) from None
    try:
        with safe_open(path, framework="numpy") as opened:
            # Tensors lie in this order, without gaps.
            parts = [(name, opened.get_slice(name)) for name in opened.offset_keys()]
            found = [(name, p.get_dtype(), tuple(p.get_shape())) for name, p in parts]
    except SafetensorError as error:
        said = str(error).splitlines()[0][:120]
        raise ValueError(
            f"{path}: expected a whole safetensors file, got {said}"
        ) from None
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start, tensors = 8 + int.from_bytes(mapped[:8], "little"), {}
    for name, code, shape in found:
        if code not in _DTYPES:
            kind = " (quantised weights are not supported)" * code.startswith("F8")
            raise ValueError(
                f"{path}: expected a dtype of {', '.join(_DTYPES)} for {name}, "
                f"got {code!r}{kind}"
            )
        tensors[name] = _view(path, mapped, start, shape, _DTYPES[code])
        start += tensors[name].nbytes
    return tensors


def _view(path, mapped, start, shape, dtype) -> Tensor:
    """Returns the tensor of a mapped file that begins at a byte."""
    count = math.prod(shape)

    def read():
        return np.frombuffer(mapped, dtype, count, start).reshape(shape)

    def release():
        """Releases the pages in memory; a view that is used again reads them again."""
        first = start - start % mmap.PAGESIZE
        length = start + count * dtype.itemsize - first
        if count and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED, first, length)

    return Tensor(shape, dtype, read, release, path)


def write_safetensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Writes a file atomically, tensor by tensor.

    A tensor is an array or a :class:`Tensor`, which is read once, when it is written.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _CODES[np.dtype(tensor.dtype)],
            "shape": tensor.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with named_file(path), aside.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, tensor in tensors.items():
                array = np.asarray(tensor, order="C")  # a scalar keeps shape ()
                if (array.dtype, array.shape) != (tensor.dtype, tensor.shape):
                    raise ValueError(
                        f"{name}: expected {tensor.dtype} {tensor.shape}, "
                        f"got {array.dtype} {array.shape}"
                    )
                file.write(array.reshape(-1).view(np.uint8).data)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
