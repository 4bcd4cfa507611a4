"""The figure of the experiment."""

from typing import Any

import numpy as np

from experiments._frame.looks import (
    demonstration_places,
    demonstrations_axis,
    key,
    page,
)
from experiments.small_lm import vocabulary as v
from experiments.small_lm.config import Config
from experiments.small_lm.curve import QUESTIONS
from icltheory.plotting import COLOURS

_PARTS = {
    "model": ("model", COLOURS[0], "-", "o"),
    "ideal": ("ideal learner, told the label words", COLOURS[1], "--", "s"),
}


def in_context_curves(config: Config, summaries: dict[str, Any]) -> Any:
    """Draws accuracy against the number of shots, one panel per task."""
    words = {True: "meaningful labels", False: "nonce labels"}
    titles = [f"{v.ATTRIBUTES[q.attribute]}, {words[q.meant]}" for q in QUESTIONS]
    title = (
        "In-context learning of the small language model, on held-out words\n"
        f"(bands: {100 * config.level:g} % intervals over "
        f"{config.demonstration_seeds} draws of demonstrations)"
    )
    with page(titles, 3, title, 2.3, sharey=True) as (shown, entries):
        for question, axes in zip(QUESTIONS, shown, strict=True):
            _panel(axes, config, question, summaries[question.name])
        for axes in shown[::3]:
            axes.set(ylabel="accuracy", ylim=(0, 1.05))
        for label, colour, line, marker in _PARTS.values():
            entries[label] = key(color=colour, linestyle=line, marker=marker)
        entries["ideal learner that knows the task"] = key(color="grey", linewidth=0.9)
        entries["chance"] = key(color="grey", linestyle=":", linewidth=0.9)
    return shown[0].figure


def _panel(axes: Any, config: Config, question: Any, parts: dict[str, Any]) -> None:
    places = demonstration_places(config.shots)
    for part, (_, colour, line, marker) in _PARTS.items():
        curve = parts[part]
        mark = {"color": colour, "marker": marker, "markersize": 4}
        axes.plot(places, curve["mean"], line, **mark)
        # The interval of an accuracy is limited to [0, 1].
        low, high = (np.clip(curve[end], 0, 1) for end in ("low", "high"))
        axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.axhline(parts["informed"]["mean"][0], color="grey", linewidth=0.9)
    chance = 1 / v.NUM_CLASSES[question.attribute]
    axes.axhline(chance, color="grey", linestyle=":", linewidth=0.9)
    demonstrations_axis(axes, config.shots)
