"""The tensors of a checkpoint in the Hugging Face layout, in one file or several."""

from pathlib import Path

import numpy as np

from icltheory._safetensors import SafetensorsFile
from icltheory.bridge._config import shard_files

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class SafetensorsFolder:
    """The tensors of a checkpoint in one file or several."""

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
        # Of a tensor in several files that one counts which the index names.
        return found | {name: opened[path] for name, path in table.items()}

    def file(self, name: str) -> Path:
        """The file that holds a tensor."""
        return self._files[name].path

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self._files[name].tensors[name].shape

    def dtype(self, name: str) -> np.dtype:
        """Dtype of a tensor."""
        return self._files[name].tensors[name].dtype

    def read(self, name: str) -> np.ndarray:
        """A view of a tensor in its file."""
        return self._files[name].read(name)

    peek = read

    def release(self, name: str) -> None:
        """Takes a tensor out of this process's memory; views of it stay valid."""
        self._files[name].release(name)
