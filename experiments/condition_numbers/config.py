"""Config and presets of the experiment."""

import dataclasses
from pathlib import Path

from experiments._frame.fields import check_at_least

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Config:
    """The model whose matrices are decomposed.

    Attributes:
        checkpoint: Folder of a checkpoint, or its name on the hub. A relative folder
            that does not exist here is looked for in the repository.
        revision: Branch, tag or commit on the hub; empty for the usual one.
        dtype: Dtype in which the weights are read; that of the file loses nothing.
        module: One matrix, ``"attn"``, ``"mlp"`` or ``"all"``.
        layers: Numbers of the layers; all if empty.
        top_k: Layers that Algorithm 1 keeps before it takes the deepest.
        cache: Folder of singular values that several runs share; empty for one of the
            run's own.
    """

    checkpoint: str = "experiments/small_lm/checkpoint"
    revision: str = ""
    dtype: str = "float32"
    module: str = "all"
    layers: tuple[int, ...] = ()
    top_k: int = 3
    cache: str = ""

    def __post_init__(self):
        check_at_least(self, 1, "top_k")
        if len(set(self.layers)) < len(self.layers):
            raise ValueError(f"layers: expected distinct numbers, got {self.layers}")

    @property
    def place(self) -> str:
        """Path of the checkpoint's folder, or its name on the hub."""
        here, inside = Path(self.checkpoint), ROOT / self.checkpoint
        return str(inside) if not here.exists() and inside.is_dir() else self.checkpoint


PRESETS = {
    "tiny": Config(),
    "gptj": Config("EleutherAI/gpt-j-6b", dtype="float16"),
    "llama2": Config("meta-llama/Llama-2-7b-hf", dtype="float16"),
}
# Measured times; the other presets have not been run yet.
TIMES = {"tiny": "seconds"}
