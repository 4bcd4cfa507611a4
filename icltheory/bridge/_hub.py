"""Locates a checkpoint: a folder, or a name on the Hugging Face hub."""

import os
import re
from pathlib import Path

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SMALL = ("*.json",)
_WEIGHTS = ("model.safetensors", "model-*.safetensors")
_FLAX = ("flax_model.msgpack", "flax_model-*.msgpack")


def locate(path_or_name: str | os.PathLike, revision: str | None) -> tuple[Path, str]:
    """Returns the folder of a checkpoint and its name.

    A folder is taken as it is; anything else that looks like a name is downloaded, or
    found in the hub's cache, and called by its name and the commit.
    """
    path = Path(path_or_name)
    if path.is_dir():
        return path, str(path)
    name = str(path_or_name)
    if path.exists() or not _NAME.fullmatch(name) or name.startswith("."):
        raise FileNotFoundError(
            f"{name}: expected the folder of a checkpoint or a name on the hub"
        )
    try:
        import huggingface_hub
    except ImportError:
        raise ImportError(
            f"{name}: no such folder, and names on the hub need "
            "`pip install icltheory[llm]`"
        ) from None

    def download(patterns):
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=list(patterns)
            )
        )

    try:
        folder = download(_SMALL + _WEIGHTS)
        if not list(folder.glob("model*.safetensors")):
            folder = download(_FLAX)
    except Exception as error:  # any error of the hub means that it is not available
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileNotFoundError(
            f"{name}: expected a folder or a name on the hub, got {said}"
        ) from error
    return folder, f"{name}@{folder.name}"
