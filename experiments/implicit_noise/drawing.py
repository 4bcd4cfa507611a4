"""Figures of error sources in in-context learning, and of the implicit noise."""

from collections.abc import Mapping, Sequence

import numpy as np

from icltheory.plotting import Curve, error_curves, panel_grid
from icltheory.plotting.style import colours

__all__ = ["error_sources", "noise_against_shots"]


def error_sources(
    totals: Mapping[int, Curve],
    shots: Mapping[str, Curve],
    training: Mapping[int, Curve],
    dim: int,
    title: str,
):
    """Draws the error at several training steps with its two sources.

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
    shades = dict(zip(map(_step, totals), _shades(len(totals)), strict=True))
    panels = {
        "error of the model": {_step(n): curve for n, curve in totals.items()},
        "= what the examples leave open": shots,
        "+ what training leaves": {_step(n): curve for n, curve in training.items()},
    }
    with panel_grid(panels, 3, title, (3.9, 3.3), legend=False) as (figure, shown, _):
        for axes, curves in zip(shown, panels.values(), strict=True):
            error_curves(
                curves,
                ax=axes,
                xlabel=f"in-context examples k (d = {dim})",
                ylabel="squared error / d",
                ylim=(2e-4, 2.5),
                colours={k: shades[k] for k in curves if k in shades},
            )
            axes.axvline(dim, color="grey", linewidth=0.8, linestyle=":", zorder=0)
    return figure


def _step(step: int) -> str:
    return f"step {step:,}"


def noise_against_shots(
    shots: Sequence[int],
    panels: Mapping[str, Mapping[str, Curve]],
    title: str,
):
    """Draws the noise of the implicit gradient against the shots, one panel per layer.

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
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    means = np.concatenate(
        [c.mean for curves in panels.values() for c in curves.values()]
    )
    limits = 0.5 * float(means[means > 0].min()), 4.0 * float(means.max())
    with panel_grid(panels, 2, title, (4.2, 3.5), legend=False) as (figure, grid, _):
        for axes, curves in zip(grid, panels.values(), strict=True):
            error_curves(
                {name: curve._replace(x=shots) for name, curve in curves.items()},
                ax=axes,
                xlabel="shots b",
                ylabel=r"$\|\tilde G_t - G_t\|^2 / \|G_t\|^2$",
                ylim=limits,
                log_x=True,
                colours=dict(zip(curves, colours(), strict=False)),
            )
            axes.set_xticks([b for b in (1, 2, 5, 10, 20, 40) if b <= max(shots)])
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_formatter(NullFormatter())
    return figure


def _shades(count: int):
    import matplotlib.pyplot as plt

    return plt.get_cmap("viridis_r")(np.linspace(0.1, 0.95, max(count, 1)))
