"""Evaluates the best tasks for Figures 17 to 19 again on fresh prompts."""

import dataclasses
import itertools
from typing import NamedTuple

from experiments.li_figures import fits
from experiments.li_figures.config import Config
from experiments.li_figures.fits import Curve, Fit, Found
from experiments.li_figures.published import LENGTHS_19
from experiments.li_figures.votes import again, row_of, search


class Level(NamedTuple):
    """A published figure and the best tasks for it.

    Attributes:
        name: The figure, and what is common to its tasks.
        labels: A name for every curve.
        curves: The published curves.
        searched: The best tasks, with the errors by which they were chosen.
        fresh: The same tasks on fresh prompts.
    """

    name: str
    labels: tuple[str, ...]
    curves: tuple[Curve, ...]
    searched: Fit
    fresh: Fit


def levels(config: Config, found: Found) -> list[Level]:
    """Returns every comparison, with errors on fresh prompts."""
    floor = config.votes.floor
    cases = []
    by_alpha = fits.curves_of("alpha'")
    for K, fit in fits.figure_17(found, floor).items():
        # A fit has one task for each fraction of the grid, in its order.
        own = tuple(by_alpha[task.fraction] for task in fit.tasks)
        labels = tuple(f"alpha' = {task.fraction:g}" for task in fit.tasks)
        cases.append((f"Figure 17, one task, K = {K}", labels, own, fit))
    for name in ("tau", "rho"):
        curves = fits.curves_of(name)
        labels = tuple(f"{name} = {value:g}" for value in curves)
        fit = fits.figure_18(found, floor, name)
        what = "p free" if name == "tau" else "rho free"
        cases.append((f"Figure 18, {name}: {what}", labels, (*curves.values(),), fit))
        tried = _with_tau(config, tuple(curves)) if name == "tau" else found
        fit = fits.figure_18_as_labelled(tried, floor, name)
        if fit is not None:
            title = f"Figure 18, {name}: as labelled"
            cases.append((title, labels, (*curves.values(),), fit))
    chain, direct = fits.curves_of_19()
    cases += [
        ("Figure 19, CoT", ("CoT",), (chain,), fits.alone(found, floor, chain)),
        ("Figure 19, ICL", ("ICL",), (direct,), fits.alone(found, floor, direct)),
        (
            "Figure 19, one task",
            ("CoT", "ICL"),
            (chain, direct),
            fits.figure_19(found, floor),
        ),
    ]
    tasks = [task for *_, fit in cases for task in fit.tasks]
    fresh = again(config.votes, LENGTHS_19, tasks, config.fresh_prompts)
    return [
        Level(*case, fits.on_fresh_prompts(case[-1], case[2], fresh, floor))
        for case in cases
    ]


def _with_tau(config: Config, values: tuple[float, ...]) -> Found:
    """Errors of tasks with the given probabilities of a correct path, for every K."""
    grid, found = config.votes, {}
    for K in grid.steps:
        probabilities = tuple(tau ** (1 / K) for tau in values)
        tried = itertools.product(probabilities, grid.gaps, grid.rivals)
        if any(row_of(*task, grid.states) is not None for task in tried):
            own = dataclasses.replace(grid, probabilities=probabilities, steps=(K,))
            found |= search(own, LENGTHS_19)
    return found
