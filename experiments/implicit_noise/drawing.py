"""Where the error of in-context learning comes from, and the implicit noise."""

from collections.abc import Mapping, Sequence

import numpy as np

from icltheory.plotting import Curve
from icltheory.plotting.style import STYLE, colours, method_colours

__all__ = ["error_sources", "noise_against_shots"]


def error_sources(
    totals: Mapping[int, Curve],
    shots: Mapping[str, Curve],
    training: Mapping[int, Curve],
    dim: int,
    title: str,
):
    """Draws the error at several training steps beside its two sources.

    Args:
        totals: Error of the answers at each step, over the number of examples.
        shots: Errors that no model avoids: least squares, and whatever is compared.
        training: The rest at each step, from the same steps as ``totals``.
        dim: Input dimension, marked by a line.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Appendix C.4. Verified by
        ``tests/experiments/test_implicit_noise.py``.
    """
    import matplotlib.pyplot as plt

    shades = _shades(len(totals))
    with plt.rc_context(STYLE):
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11.5, 4.0))
        for axes, curves in ((left, totals), (right, training)):
            for colour, (step, curve) in zip(shades, curves.items(), strict=True):
                _draw(axes, range(len(curve.mean)), curve, f"step {step:,}", colour)
        own = method_colours(shots)
        for name, curve in shots.items():
            _draw(middle, range(len(curve.mean)), curve, name, own[name])
        left.set(title="error of the model", ylabel="squared error / d", ylim=(0, 1.4))
        middle.set(title="= what the shots leave open", ylim=(0, 1.4))
        right.set(title="+ what training leaves", yscale="log", ylim=(1e-4, 3))
        for axes in (left, middle, right):
            axes.axvline(dim, color="grey", linewidth=0.8, linestyle=":", zorder=0)
            axes.set_xlabel(f"in-context examples k  (d = {dim})")
        middle.legend(fontsize=8, loc="upper right")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside right center")
        figure.suptitle(title)
    return figure


def noise_against_shots(
    shots: Sequence[int],
    panels: Mapping[str, Mapping[str, Curve]],
    title: str,
):
    """Draws the noise of the implicit gradient against the shots, a panel a layer.

    Args:
        shots: Numbers b of demonstrations, the same in all panels.
        panels: Curves over ``shots`` for each layer; zeros are left out.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Section 3.3. Verified by
        ``tests/experiments/test_implicit_noise.py``.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    with plt.rc_context(STYLE):
        width = 3.6 * len(panels) + 2.4
        figure, grid = plt.subplots(
            1, len(panels), figsize=(width, 4.0), squeeze=False, sharey=True
        )
        for axes, (name, curves) in zip(grid[0], panels.items(), strict=True):
            for colour, (label, curve) in zip(colours(), curves.items(), strict=False):
                _draw(axes, shots, curve, label, colour, marker=".")
            axes.set(title=name, xscale="log", yscale="log", xlabel="shots b")
            axes.set_xticks([b for b in (1, 2, 5, 10, 20, 40) if b <= max(shots)])
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_formatter(NullFormatter())
        grid[0][0].set_ylabel(r"$\|\tilde G_t - G_t\|^2 / \|G_t\|^2$")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside right center")
        figure.suptitle(title)
    return figure


def _shades(count: int):
    import matplotlib.pyplot as plt

    return plt.get_cmap("viridis_r")(np.linspace(0.1, 0.95, max(count, 1)))


def _draw(axes, x, curve: Curve, label: str, colour, **kwargs) -> None:
    """A line over its band; what is not positive is no point of a log axis."""
    mean = np.asarray(curve.mean, dtype=float)
    style = {"linestyle": "--", "linewidth": 1.4} if curve.exact else {}
    axes.plot(x, mean, color=colour, label=label, **kwargs, **style)
    if curve.low is not None:
        low, high = (np.asarray(v, dtype=float) for v in (curve.low, curve.high))
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
