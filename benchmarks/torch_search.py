"""The search of a clipping rate as a user of transformers would write it.

It imports neither JAX nor this library, so that its memory can be measured alone.
"""

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

BATCH = 32
RATES = (0.0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)


class Torch:
    """A transformers model that scores labels in batches sorted by length."""

    def __init__(self, folder: str):
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        load: Any = AutoModelForCausalLM.from_pretrained
        self.model = load(folder, dtype="auto").to(self.device).eval()

    def searched(self, rows, labels, layer: int | None) -> np.ndarray:
        """Returns the scores of all rows, at all clipping rates of a layer's MLP."""
        with self.torch.inference_mode():
            if layer is None:
                return np.array([self.scores(rows, labels)])
            mlp = self.model.model.layers[layer].mlp
            weights = [mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight]
            kept = [W.clone() for W in weights]
            svd = functools.partial(self.torch.linalg.svd, full_matrices=False)
            parts = [svd(W.float()) for W in kept]
            found = []
            for rate in RATES:
                for W, old, (U, s, Vt) in zip(weights, kept, parts, strict=True):
                    rank = math.floor(min(W.shape) * (1 - Fraction(str(rate))))
                    cut = (U[:, :rank] * s[:rank]) @ Vt[:rank]
                    W.copy_(cut if rate else old)
                found.append(self.scores(rows, labels))
        return np.array(found)

    def scores(self, rows: Sequence[Sequence[int]], labels: Sequence[int]) -> list[Any]:
        """Returns the logits of the labels after each row of tokens."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found: dict[int, list[float]] = {}
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            longest = len(rows[numbers[-1]])
            gaps = [longest - len(rows[i]) for i in numbers]
            pairs = list(zip(gaps, [rows[i] for i in numbers], strict=True))
            ids = [[0] * gap + list(row) for gap, row in pairs]
            mask = [[0] * gap + [1] * len(row) for gap, row in pairs]
            given = {"input_ids": ids, "attention_mask": mask}
            tensor = functools.partial(self.torch.tensor, device=self.device)
            tensors = {name: tensor(values) for name, values in given.items()}
            logits = self.model(**tensors, logits_to_keep=1, use_cache=False).logits
            chosen = logits[:, -1, list(labels)].float().tolist()
            found.update(zip(numbers, chosen, strict=True))
        return [found[i] for i in range(len(rows))]
