"""The tensors of a checkpoint in the Hugging Face layout, in one or several files."""

from pathlib import Path

import numpy as np

from icltheory._safetensors import SafetensorsFile
from icltheory.bridge._config import shard_files

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class SafetensorsFolder:
    """The tensors of a checkpoint in one or several safetensors files."""

    def __init__(self, folder: Path):
        if (folder / INDEX).is_file() and not (folder / SINGLE).is_file():
            self.where = folder / INDEX
            files = self._shards()
        else:
            self.where = folder / SINGLE
            single = SafetensorsFile(self.where)
            files = dict.fromkeys(single.tensors, single)
        self._files: dict[str, SafetensorsFile] = files
        self.names = frozenset(files)

    def _shards(self):
        table = shard_files(self.where)
        opened = {path: SafetensorsFile(path) for path in dict.fromkeys(table.values())}
        for name, path in table.items():
            if name not in opened[path].tensors:
                raise ValueError(f"{path}: expected tensor {name}, found none")
        found = {n: file for file in opened.values() for n in file.tensors}
        # For a tensor in several files, the one named by the index is used.
        return found | {name: opened[path] for name, path in table.items()}

    def file(self, name: str) -> Path:
        """Returns the file that holds a tensor."""
        return self._files[name].path

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""
        return self._files[name].tensors[name].shape

    def dtype(self, name: str) -> np.dtype:
        """Returns the dtype of a tensor."""
        return self._files[name].tensors[name].dtype

    def read(self, name: str) -> np.ndarray:
        """Returns a view of a tensor in its file."""
        return self._files[name].read(name)

    peek = read

    def release(self, name: str) -> None:
        """Releases the memory pages of a tensor; its views stay valid."""
        self._files[name].release(name)
