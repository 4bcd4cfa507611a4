"""Figure 4: accuracy of every model on every task, before and after Algorithm 1."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments._frame.looks import WIDTH, key
from icltheory.plotting.grid import SMALL
from icltheory.plotting.style import COLOURS

__all__ = ["ModelBars", "before_and_after"]

_PALE = 0.4


class ModelBars(NamedTuple):
    """Accuracy of one model on one task, before and after Algorithm 1.

    Attributes:
        before: Accuracy of the unpruned model, with the ends of its interval.
        after: Accuracy after Algorithm 1, likewise.
        published: The two published scores; ``None`` if there are none.
    """

    before: tuple[float, float, float]
    after: tuple[float, float, float]
    published: tuple[float, float] | None = None


def before_and_after(
    tasks: Mapping[str, Mapping[str, ModelBars]], models: Sequence[str], title: str
):
    """Draws for each task two bars per model: before (pale) and after Algorithm 1.

    Args:
        tasks: For each task the bars of its models.
        models: The models, in order; each has its colour.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figure 4. Verified by
        ``tests/experiments/test_prune_llm_join.py``.
    """
    import matplotlib.pyplot as plt

    wide = 0.8 / (2 * len(models))
    with plt.rc_context(SMALL):
        figure, axes = plt.subplots(figsize=(WIDTH, 3.4))
        for place, bars in enumerate(tasks.values()):
            for number, model in enumerate(models):
                if model in bars:
                    left = place - 0.4 + 2 * number * wide
                    _pair(axes, left, wide, bars[model], COLOURS[1 + number])
        axes.set_xticks(range(len(tasks)), list(tasks))
        axes.set(ylabel="test accuracy", title=title, ylim=(0, None))
        entries = {}
        for number, model in enumerate(models):
            look = {"color": COLOURS[1 + number], "linewidth": 6}
            entries[f"{model}, unpruned"] = key(**look, alpha=_PALE)
            entries[f"{model}, Algorithm 1"] = key(**look)
        if any(b.published for bars in tasks.values() for b in bars.values()):
            entries["published"] = key(linestyle="", marker="D", color="black")
        figure.legend(
            entries.values(), entries.keys(), loc="outside lower center", ncols=2
        )
    return figure


def _pair(axes, left, wide, bars: ModelBars, colour) -> None:
    published = bars.published or (None, None)
    pairs = zip((bars.before, bars.after), published, (_PALE, 1.0), strict=True)
    for number, ((value, low, high), other, alpha) in enumerate(pairs):
        x = left + (number + 0.5) * wide
        axes.bar(x, value, 0.9 * wide, color=colour, alpha=alpha)
        ends = [[max(value - low, 0)], [max(high - value, 0)]]
        axes.errorbar(x, value, ends, color="0.25", linewidth=1, capsize=2)
        if other is not None:
            axes.plot(x, other, "D", color="black", markersize=3.5)
