"""Tables 2 to 8 of Yao et al. (2024) as data, and the configs of its two models."""

import json
from pathlib import Path
from typing import Any

from icltheory.bridge.architecture import Architecture
from icltheory.bridge.tasks import possible_counts

STORED = json.loads(Path(__file__).with_name("published.json").read_text())
# Family, layers, vocabulary and context of the two models.
MODELS = {
    ("gptj", 28, 50400, 2048): "GPT-J-6B",
    ("llama", 32, 32000, 4096): "LLAMA2-7B",
}
CONFIGS: dict[str, dict[str, Any]] = STORED["configs"]


def model_name(arch: Architecture) -> str | None:
    """Name of the paper's model that has this architecture."""
    sizes = arch.family, arch.num_layers, arch.vocab_size, arch.max_positions
    return MODELS.get(sizes)


def denominator(task: str) -> str:
    """Divisor that the printed scores of a task fit: n, n-1, or both."""
    rows = [row for row in STORED["rows"] if row["task"] == task]
    fits = [
        possible_counts(score, STORED["sizes"][task], len(score.partition(".")[2]))
        for row in rows
        for score in (row["before"], row["after"])
    ]
    shared = [name for name in ("n", "n-1") if all(name in fit for fit in fits)]
    return "both" if len(shared) == 2 else "".join(shared) or "neither"


def beside(model: str | None, tested: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of Algorithm 1 beside those of the paper, whose scores are text."""
    names = ("model", "task", "module")
    printed = {tuple(row[name] for name in names): row for row in STORED["rows"]}
    rows = []
    for own in tested:
        theirs = printed.get((model, own["task"], own["module"]))
        if own["arm"] == "algorithm1" and theirs is not None:
            rows.append(
                {
                    **{key: own[key] for key in ("task", "draw", "module", "layer")},
                    "rate": f"{own['chosen']:g}",
                    "ours": f"{own['before']:.3f} -> {own['after']:.3f}",
                    "their layer": theirs["layer"],
                    "their rate": theirs["rate"],
                    "theirs": f"{theirs['before']} -> {theirs['after']}",
                }
            )
    return rows
