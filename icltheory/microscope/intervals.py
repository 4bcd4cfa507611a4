"""Intervals of skewed distances, and the best mixture of candidates with its own."""

from typing import Any

import numpy as np
import scipy.special

from icltheory._checks import as_numbers, open_unit
from icltheory.statistics import Estimate, Interval


class SkewedEstimate(Estimate):
    r"""A mean of skewed values, such as squared distances of answers.

    .. math:: \bar x - t\, \mathrm{se}, \qquad
        \bar x + \mathrm{se} \Bigl(t + \gamma\, \frac{1 + 2 t^2}{6 \sqrt S}\Bigr)

    for a skewness gamma > 0: Student's lower end and Johnson's upper one; mirrored for
    gamma < 0. Squared distances have skewness 17 and more, and Student's interval of
    1,000 of them covers 92 %.

    Example:
        >>> found = SkewedEstimate.of([0.0, 0.0, 0.0, 8.0])
        >>> print(found.mean, found.standard_error, found.skewness.round(4))
        2.0 2.0 1.1547

    Source: Johnson (1978).
    """

    skewness: Any = 0.0

    @classmethod
    def of(cls, values: Any, axis: int = 0, how: str = "") -> "SkewedEstimate":
        """Mean of independent values along an axis, with their skewness."""
        table = as_numbers("values", values)
        found = Estimate.of(table, axis, how)
        centred = table - table.mean(axis=axis, keepdims=True)
        unit = np.abs(centred).max(axis=axis, keepdims=True)
        scaled = centred / np.where(unit > 0, unit, 1)
        cubes, squares = (np.mean(scaled**p, axis=axis) for p in (3, 2))
        skewness = cubes / np.where(squares > 0, squares, 1) ** 1.5
        return cls(found.mean, found.standard_error, found.dof, how, skewness)

    def interval(self, level: float | int = 0.95) -> Interval:
        """Student's interval with the end of the long tail moved out."""
        half = self.half_width(level)
        quantile = float(scipy.special.stdtrit(self.dof, (1 + level) / 2))
        root = 6 * np.sqrt(self.dof + 1)
        moved = self.standard_error * self.skewness * (1 + 2 * quantile**2) / root
        low, high = np.minimum(moved, 0), np.maximum(moved, 0)
        return Interval(self.mean - half + low, self.mean + half + high)


def explained_share(errors: Any, answers: Any) -> SkewedEstimate:
    r"""A mean squared error over the variance of the answers.

    .. math:: R = \frac{E\, e^2}{E (f - E f)^2}, \qquad
        \mathrm{se} = \mathrm{sd}\bigl(e^2 - R (f - E f)^2\bigr)
        / (\sqrt S\, \mathrm{var} f) .

    Example:
        >>> found = explained_share([1.0, -1.0, 1.0], [2.0, -2.0, 0.0])
        >>> round(found.mean, 6), round(found.standard_error, 3)
        (0.375, 0.188)

    Source: the delta method.
    """
    e, f = as_numbers("errors", errors) ** 2, as_numbers("answers", answers)
    return ratio(e, (f - f.mean()) ** 2)


def ratio(top: np.ndarray, bottom: np.ndarray) -> SkewedEstimate:
    """Ratio of two means over the same prompts, by the delta method; NaN for 0 / 0."""
    mean = bottom.mean()
    if mean == 0:
        value = np.nan if top.mean() == 0 else np.inf
        return SkewedEstimate(value, np.nan, len(top) - 1)
    value = float(top.mean() / mean)
    spread = SkewedEstimate.of((top - value * bottom) / mean)
    error, skewness = float(spread.standard_error), float(spread.skewness)
    return SkewedEstimate(value, error, spread.dof, "", skewness)


def stacked(estimates: Any) -> SkewedEstimate:
    """Estimates of several places as one, with arrays as fields."""
    leaves = [[e.mean, e.standard_error, e.skewness] for e in estimates]
    mean, error, skewness = np.array(leaves, float).T
    return SkewedEstimate(mean, error, estimates[0].dof, "", skewness)


def mixture_weights(errors: Any) -> np.ndarray:
    r"""Weights on the simplex whose mixture of answers is closest to the model.

    .. math:: \min_{w \ge 0,\ \sum_j w_j = 1}\ \frac1S \sum_s
        \Bigl(\sum_j w_j (g_{sj} - f_s)\Bigr)^2 .

    With u = s w the problem is :math:`\min_{u \ge 0} |E u|^2 + (1 - \sum_j u_j)^2`,
    whose minimum over s grows with that over w: non-negative least squares.

    Args:
        errors: The differences g - f of J candidates, ``(S, J)``.

    Example:
        >>> mixture_weights([[1.0, -1.0], [1.0, -1.0], [-3.0, 3.0]]).round(6).tolist()
        [0.5, 0.5]

    Source: Lawson and Hanson (1974).
    """
    from scipy.optimize import nnls  # SciPy is slow to import

    E = _table(errors)
    size = np.sqrt(np.mean(E**2, axis=0)).max(initial=0)
    # The triangle has the same Gram matrix as the errors, in J rows.
    R = np.linalg.qr(E / (size * np.sqrt(len(E)) if size > 0 else 1), mode="r")
    target = np.append(np.zeros(len(R)), 1)
    found, _ = nnls(np.vstack([R, np.ones(E.shape[1])]), target)
    return found / found.sum()


def weight_intervals(
    errors: Any, weights: Any, level: float | int = 0.95
) -> list[Interval]:
    r"""Intervals of the weights of the best mixture, for prompts drawn at random.

    With the candidates of positive weight, and one more, the weights that sum to 1 are
    a linear regression; the interval is Student's with the sandwich covariance

    .. math:: Z (D^\top D)^{-1} \Bigl(\sum_s r_s^2 d_s d_s^\top\Bigr)
        (D^\top D)^{-1} Z^\top ,

    D = E Z, the columns of Z a basis of the vectors of sum 0, and r the residuals. It
    is cut to [0, 1]. The positive weights are taken as known.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> errors = rng.normal(size=(500, 2)) @ np.array([[1.0, 0.2], [0.0, 1.0]])
        >>> low, high = weight_intervals(errors, mixture_weights(errors))[0]
        >>> bool(0.4 < low < 0.512 < high < 0.6)
        True

    Source: White (1980), for the sandwich.
    """
    open_unit("level", level)
    E, w = _table(errors), as_numbers("weights", weights)
    support = w > 0
    found = []
    for j in range(len(w)):
        chosen = np.flatnonzero(support | (np.arange(len(w)) == j))
        value, error = _fitted(E[:, chosen], int(np.searchsorted(chosen, j)))
        dof = max(len(E) - len(chosen), 1)
        half = float(scipy.special.stdtrit(dof, (1 + level) / 2)) * error
        ends = np.clip([value - half, value + half], 0, 1)
        found.append(Interval(*ends.tolist()))
    return found


def _table(errors: Any) -> np.ndarray:
    E = as_numbers("errors", errors)
    if E.ndim != 2 or not E.size:
        raise ValueError(f"errors: expected (prompts, candidates), got {E.shape}")
    return E


def _fitted(E: np.ndarray, j: int) -> tuple[float, float]:
    """Weight j of the best combination that sums to 1, with its standard error."""
    size = E.shape[1]
    if size == 1:
        return 1.0, 0.0
    Z = np.eye(size)[:, np.arange(size) != j] - np.eye(size)[:, [j]]
    D = E @ Z
    inverse = np.linalg.pinv(D)
    u = -inverse @ E[:, j]
    w = np.eye(size)[:, j] + Z @ u
    moved = inverse * (E @ w)[None]
    factor = len(E) / max(len(E) - size + 1, 1)
    covariance = factor * Z @ moved @ moved.T @ Z.T
    return float(w[j]), float(np.sqrt(max(covariance[j, j], 0)))
