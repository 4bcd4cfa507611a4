"""Fits the searched tasks to the published levels of Figures 17 to 19."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.li_figures.published import (
    FIGURE_19,
    LENGTHS_19,
    PUBLISHED,
    PUBLISHED_LENGTHS,
)
from experiments.li_figures.votes import Task

CHAIN, DIRECT = 0, 1
_LATER = [LENGTHS_19.index(length) for length in PUBLISHED_LENGTHS]
_ALL = list(range(len(LENGTHS_19)))
Found = Mapping[Task, tuple[np.ndarray, np.ndarray]]


class Fit(NamedTuple):
    """The best task for a figure, or the best task for each curve.

    Attributes:
        tasks: A task for every curve.
        errors: Their errors, by curve.
        typical: Root mean square of the logarithms of the ratios to the published
            errors, as a factor.
        largest: The largest ratio, as a factor.
    """

    tasks: tuple[Task, ...]
    errors: tuple[np.ndarray, ...]
    typical: float
    largest: float


class Curve(NamedTuple):
    """A published curve, and the lengths at which it is compared.

    Attributes:
        values: Published errors; NaN where none can be read.
        places: Places among the lengths of Figure 19.
        kind: ``CHAIN`` or ``DIRECT``.
    """

    values: np.ndarray
    places: list[int]
    kind: int = CHAIN


def curves_of(name: str) -> dict[float, Curve]:
    """Returns the curves of Figure 17 (``alpha'``) or 18 (``tau``, ``rho``)."""
    read = PUBLISHED[name]
    return {value: Curve(_numbers(row), _LATER) for value, row in read.items()}


def curves_of_19() -> tuple[Curve, Curve]:
    """Returns the curves of Figure 19: chain of thought, plain in-context learning."""
    return (
        Curve(_numbers(FIGURE_19["chain"]), _ALL),
        Curve(_numbers(FIGURE_19["direct"]), _ALL, DIRECT),
    )


def _numbers(row: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in row])


def figure_17(found: Found, floor: float) -> dict[int, Fit]:
    """Fits Figure 17: one task for all alpha', for each number of steps K."""
    curves = curves_of("alpha'")
    fits = {}
    for K in sorted({task.steps for task in found}):
        groups = _groups(found, lambda t: (t.p, t.gap, t.rivals), K)
        fits[K] = _best(
            [
                [(curves[t.fraction], [t]) for t in group if t.fraction in curves]
                for group in groups
            ],
            found,
            floor,
        )
    return fits


def figure_18(found: Found, floor: float, name: str) -> Fit:
    """Fits Figure 18: one task per curve, which differ only in the varied quantity."""
    curves = curves_of(name)

    def fixed(t: Task) -> Any:
        return (t.p if name == "rho" else t.gap, t.rivals, t.fraction)

    groups = [
        group
        for K in sorted({task.steps for task in found})
        for group in _groups(found, fixed, K)
    ]
    return _best([[(c, g) for c in curves.values()] for g in groups], found, floor)


def figure_18_as_labelled(found: Found, floor: float, name: str) -> Fit | None:
    """Fits Figure 18 by tasks whose tau or rho is the value stated in the figure.

    Args:
        found: Errors by task.
        floor: Added to both errors.
        name: ``tau``, the probability of a correct path, or ``rho``.

    Returns:
        The fit; ``None`` where no tasks with these values were tried.
    """
    curves = curves_of(name)

    def fixed(t: Task) -> Any:
        return (t.p if name == "rho" else t.gap, t.rivals, t.fraction)

    def value(t: Task) -> float:
        return t.gap if name == "rho" else t.tau

    candidates = []
    for K in {task.steps for task in found}:
        for group in _groups(found, fixed, K):
            named = {round(value(task), 9): [task] for task in group}
            if all(label in named for label in curves):
                candidates.append([(c, named[label]) for label, c in curves.items()])
    return _best(candidates, found, floor) if candidates else None


def alone(found: Found, floor: float, curve: Curve) -> Fit:
    """Fits one task to one curve."""
    return _best([[(curve, [*found])]], found, floor)


def on_fresh_prompts(fit: Fit, curves: Sequence[Curve], fresh: Found, floor: float):
    """Evaluates the tasks of a fit on prompts that were not used to choose them.

    Args:
        fit: The fit.
        curves: Its published curves.
        fresh: Errors of its tasks, at least.
        floor: As in the search.

    Returns:
        The fit.
    """
    pairs = zip(curves, fit.tasks, strict=True)
    return _best([[(curve, [task]) for curve, task in pairs]], fresh, floor)


def figure_19(found: Found, floor: float) -> Fit:
    """Fits one task to both curves of Figure 19."""
    return _best([[(c, [t]) for c in curves_of_19()] for t in found], found, floor)


def _groups(found: Found, fixed, K: int) -> Iterable[list[Task]]:
    groups: dict[Any, list[Task]] = {}
    for task in found:
        if task.steps == K:
            groups.setdefault(fixed(task), []).append(task)
    return groups.values()


def _best(candidates, found: Found, floor: float) -> Fit:
    """Returns the candidate of least deviation, a list of (curve, tasks to choose)."""
    fits = []
    for candidate in candidates:
        chosen = [
            min(((t, _logs(found[t], c, floor)) for t in tasks), key=_square)
            for c, tasks in candidate
        ]
        logs = np.concatenate([each for _, each in chosen])
        errors = tuple(
            found[t][c.kind][c.places]
            for (t, _), (c, _) in zip(chosen, candidate, strict=True)
        )
        fits.append(
            Fit(
                tuple(t for t, _ in chosen),
                errors,
                float(np.exp(np.sqrt(np.mean(logs**2)))),
                float(np.exp(np.abs(logs).max())),
            )
        )
    return min(fits, key=lambda fit: fit.typical)


def _square(pair: tuple[Task, np.ndarray]) -> float:
    return float(np.sum(pair[1] ** 2))


def _logs(errors, curve: Curve, floor: float) -> np.ndarray:
    """Logarithms of measured over published errors, where they can be read."""
    known = np.isfinite(curve.values)
    measured = errors[curve.kind][curve.places][known]
    return np.log((measured + floor) / (curve.values[known] + floor))
