"""The picture of the experiment."""

from typing import Any

import numpy as np

from experiments.small_lm import vocabulary as v
from experiments.small_lm.config import Config
from experiments.small_lm.curve import QUESTIONS
from icltheory.plotting import COLOURS, STYLE


def in_context_curves(config: Config, summaries: dict[str, Any]) -> Any:
    """Accuracy over the number of shots, a panel a task."""
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            1, len(QUESTIONS), figsize=(3.1 * len(QUESTIONS), 3.9), sharey=True
        )
        for question, axes in zip(QUESTIONS, panels, strict=True):
            _panel(axes, config, question, summaries[question.name])
        panels[0].set_ylabel("accuracy")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=9)
        figure.suptitle(
            "In-context learning of the small language model, on held-out sentences "
            "and pairs of nonce words\n"
            f"(bands: {100 * config.level:g} % intervals over "
            f"{config.demonstration_seeds} draws of demonstrations)",
            fontsize=11,
        )
    return figure


def _panel(axes: Any, config: Config, question: Any, parts: dict[str, Any]) -> None:
    place = np.arange(len(config.shots))
    for part, label, colour, line in (
        ("model", "model", COLOURS[0], "-"),
        ("ideal", "ideal learner, told the label words", COLOURS[1], "--"),
    ):
        curve = parts[part]
        axes.plot(place, curve["mean"], line, color=colour, label=label, marker="o")
        axes.fill_between(
            place, curve["low"], curve["high"], color=colour, alpha=0.2, linewidth=0
        )
    top = parts["informed"]["mean"][0]
    axes.axhline(top, color="grey", linewidth=0.9, label="who knows the task")
    chance = 1 / v.NUM_CLASSES[question.attribute]
    axes.axhline(chance, color="grey", linestyle=":", linewidth=0.9, label="chance")
    words = "label words mean it" if question.meant else "nonce label words"
    axes.set(
        title=f"{v.ATTRIBUTES[question.attribute]}\n{words}",
        xlabel="demonstrations",
        xticks=place,
        xticklabels=[str(k) for k in config.shots],
        ylim=(0, 1.03),
    )
