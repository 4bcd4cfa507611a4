"""Builds the tables, figures and checks of a run."""

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from experiments._frame.report import Check, Report, largest
from experiments.implicit_noise.config import Config
from experiments.implicit_noise.drawing import error_sources, noise_against_shots
from experiments.implicit_noise.implied import ErrorSplit
from experiments.implicit_noise.measure import bayes_with_label_noise
from experiments.implicit_noise.subsets import SubsetNoise
from icltheory.plotting import Curve
from icltheory.statistics import Estimate

Splits, Noises = dict[int, ErrorSplit], dict[int, SubsetNoise]


def report(config: Config, splits: Splits, noises: Noises) -> Report:
    """Tables, figures, checks, findings and numbers of a run."""
    bayes = bayes_with_label_noise(config)
    numbers = {
        "gpt2": {
            str(step): {
                name: values.mean(axis=0).tolist()
                for name, values in parts._asdict().items()
            }
            for step, parts in splits.items()
        },
        "bayes_with_label_noise": bayes.tolist(),
        "shots": list(config.shots),
        "stack": {
            str(step): {
                name: {
                    "mean": values.mean(axis=1).tolist(),
                    "median": np.median(values, axis=1).tolist(),
                }
                for name, values in noise._asdict().items()
            }
            for step, noise in noises.items()
        },
    }
    return Report(
        numbers,
        checks=[*gpt2_checks(config, splits), *stack_checks(config, noises)],
        tables=[sources_table(config, splits), noise_table(config, noises)],
        findings=findings(config, splits, noises, bayes),
        figures=_figures(config, splits, noises, bayes),
        interval_level=0.9,
        axes={
            "gpt2.*.*": ["examples k, from 0"],
            "bayes_with_label_noise": ["examples k, from 0"],
            "stack.*.shots.*": ["number of shots b", "layer"],
            "stack.*.fresh.*": ["number of shots b", "layer"],
            "stack.*.gaussian.*": ["number of shots b", "layer"],
            "stack.*.formula.*": ["number of shots b", "layer"],
        },
    )


def z_score(sample: np.ndarray, axis: int = 0) -> np.ndarray:
    """Mean divided by its standard error."""
    mean, error = Estimate.of(np.asarray(sample), axis)
    return mean / error


def gpt2_checks(config: Config, splits: Splits) -> list[Check]:
    """Checks identities of the error's parts that hold for any model."""
    d = config.gpt2.dim
    first, last = splits[min(splits)], splits[max(splits)]
    exact = 1 - np.arange(d) / d
    wrong = largest(
        np.abs((s.shots + s.training + s.curvature + s.cross) / s.total - 1).max()
        for s in splits.values()
    )
    shots = np.abs(z_score(last.shots[:, :d] - exact)).max()
    cross = largest(np.abs(z_score(s.cross[:, :d])).max() for s in splits.values())
    left = [float((s.training + s.curvature)[:, 2 * d].mean()) for s in (first, last)]
    at_d, at_2d = (float(last.total[:, k].mean()) for k in (d, 2 * d))
    return [
        # The queries are orthonormal up to float32 rounding.
        Check("the parts sum to the error", float(wrong), 0.0, "<=", 1e-4),
        Check("shots against 1 - k/d, largest |z|", float(shots), 5.0, "<="),
        Check("shots from k = d", float(last.shots[:, d:].max()), 0.0, "<=", 1e-9),
        Check("cross term against 0, largest |z|", float(cross), 5.0, "<="),
        Check("training reduces its part at k = 2d", left[1], left[0], "<="),
        Check("error at k = 2d below that at k = d", at_2d, at_d, "<="),
    ]


def stack_checks(config: Config, noises: Noises) -> list[Check]:
    """Checks identities of the noise of b of N demonstrations for any weights."""
    below = np.array([b < config.pool for b in config.shots])
    found = []
    if below.any():
        z = largest(
            np.abs(z_score((n.shots - n.formula)[below, :, 0], axis=1)).max()
            for n in noises.values()
        )
        found.append(Check("layer 1 against tr C_1, largest |z|", float(z), 5.0, "<="))
    if not below.all():
        rest = largest(float(n.shots[~below].max()) for n in noises.values())
        found.append(Check("noise of b = N", rest, 0.0, "<=", 1e-9))
    return found


def findings(
    config: Config, splits: Splits, noises: Noises, bayes: np.ndarray
) -> list[str]:
    """Summarises the results in sentences."""
    d, step = config.gpt2.dim, max(splits)
    last = splits[step]
    error = last.total.mean(axis=0)
    left = (last.training + last.curvature).mean(axis=0)
    worst = int(left.argmax())
    said = [
        f"threshold: least squares has error 0 from k = d = {d}; the transformer has "
        f"{error[d]:.3f} there and {error[2 * d]:.3f} at k = 2d",
        f"with label noise of variance {config.label_noise:g} there is no threshold: "
        f"the Bayes error is {bayes[d]:.3f} at k = d, {bayes[2 * d]:.3f} at k = 2d",
        f"sources: what training leaves is {left[0]:.4f} at k = 0, largest at "
        f"k = {worst} ({left[worst]:.3f}), {left[2 * d]:.3f} at k = 2d",
    ]
    middle = min(
        range(len(config.shots)), key=lambda i: abs(2 * config.shots[i] - config.pool)
    )
    for step in (min(noises), max(noises)):
        parts = noises[step]
        prompt, fresh, gaussian, formula = (
            np.median(getattr(parts, name)[middle, :, -1])
            for name in ("shots", "fresh", "gaussian", "formula")
        )
        said.append(
            f"stack at step {step:,}, last layer, b = {config.shots[middle]} of "
            f"{config.pool}, medians: noise {prompt:.3g} of a prompt, {fresh:.3g} with "
            f"fresh demonstrations a layer, {gaussian:.3g} by eq. (4), {formula:.3g} = "
            "tr C_t"
        )
    return said


def sources_table(config: Config, splits: Splits) -> Table:
    """Builds the table of error, shot noise and training error by k and step."""
    d = config.gpt2.dim
    rows = sorted({0, 1, d // 2, d - 1, d, d + 1, 3 * d // 2, 2 * d})
    table = Table(title="GPT-2: squared error / d and its sources (no label noise)")
    for name in ("k", "1 - k/d", "shots"):
        table.add_column(name, justify="right")
    for step in splits:
        table.add_column(f"training\nstep {step:,}", justify="right", no_wrap=True)
    for name in ("of it not linear", "error"):
        table.add_column(f"{name}\nstep {max(splits):,}", justify="right", no_wrap=True)
    last = splits[max(splits)]
    for k in rows:
        left = [(s.training + s.curvature)[:, k].mean() for s in splits.values()]
        cells = [max(1 - k / d, 0), last.shots[:, k].mean(), *left]
        cells += [last.curvature[:, k].mean(), last.total[:, k].mean()]
        table.add_row(str(k), *(f"{cell:.4f}" for cell in cells))
    return table


def noise_table(config: Config, noises: Noises) -> Table:
    """Builds the table of noise by b at the stack's first and last layer."""
    step, layers = max(noises), config.stack.num_layers
    noise = noises[step]
    table = Table(
        title=f"linear stack, step {step:,}: |G(b) - G(N)|^2 / |G(N)|^2, "
        f"N = {config.pool}; medians over prompts beyond layer 1"
    )
    table.add_column("b", justify="right")
    names = ["layer 1, mean", "tr C_1"]
    if layers > 1:
        names += [f"layer {layers}", "fresh", "eq. (4)", f"tr C_{layers}"]
    for name in [*names, "shots: error/d", "training: median/d"]:
        table.add_column(name, justify="right", no_wrap=True)
    for i, b in enumerate(config.shots):
        cells = [noise.shots[i, :, 0].mean(), noise.formula[i, :, 0].mean()]
        if layers > 1:
            cells += [
                np.median(part[i, :, -1])
                for part in (noise.shots, noise.fresh, noise.gaussian, noise.formula)
            ]
        cells += [noise.missed[i].mean(), np.median(noise.off[i])]
        table.add_row(str(b), *(f"{cell:.3g}" for cell in cells))
    return table


def _interval(sample: np.ndarray) -> Curve:
    """Returns the mean over prompts with its 90 % interval."""
    return Curve.of(Estimate.of(np.asarray(sample)), 0.9)


def _quartiles(sample: np.ndarray) -> Curve:
    """Returns the median over prompts with the quartiles, from (shots, prompts)."""
    low, middle, high = np.quantile(sample, (0.25, 0.5, 0.75), axis=1)
    return Curve(middle, low, high)


def _figures(
    config: Config, splits: Splits, noises: Noises, bayes: np.ndarray
) -> dict[str, Figure]:
    d = config.gpt2.dim
    last = splits[max(splits)]
    k = np.arange(last.total.shape[1])
    noisy = f"Bayes, label noise {config.label_noise:g}"
    sources = error_sources(
        {step: _interval(s.total) for step, s in splits.items()},
        {
            "least squares": _interval(last.shots),
            "1 - k/d": Curve.of(np.maximum(1 - k / d, 0)),
            noisy: Curve.of(bayes),
        },
        {step: _interval(s.training + s.curvature) for step, s in splits.items()},
        d,
        f"GPT-2 on noiseless linear regression, d = {d}: two sources of error "
        "(bands: 90 % intervals)",
    )
    step = max(noises)
    noise = noises[step]
    below = [i for i, b in enumerate(config.shots) if b < config.pool]
    panels = {
        f"layer {t + 1}": {
            "the prompt's b": _quartiles(noise.shots[below, :, t]),
            "b fresh per layer": _quartiles(noise.fresh[below, :, t]),
            "Gaussian, eq. (4)": _quartiles(noise.gaussian[below, :, t]),
            r"$\operatorname{tr} C_t$, exact": Curve.of(
                np.median(noise.formula[below, :, t], axis=1)
            ),
        }
        for t in range(config.stack.num_layers)
    }
    if not below:
        return {"sources.png": sources}
    subsets = noise_against_shots(
        [config.shots[i] for i in below],
        panels,
        f"Implicit noise of a linear stack trained for {step:,} steps, "
        f"N = {config.pool}\nmedian and middle half of the prompts",
    )
    return {"sources.png": sources, "subsets.png": subsets}
