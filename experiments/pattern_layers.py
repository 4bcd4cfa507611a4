"""Three layers on pattern tasks: attention, labels, errors (Figures 21 to 26).

Trains transformers of three layers with residuals by Adam, a model a seed, on 18 of the
30 tasks and again on a ring of 6. Follows the attention to contexts of the query's
pattern in every layer, and norm and angle to +-q of the label part of each row of
W_O W_V; then tests on shifted patterns of coefficient sum S_1, by 0-1 and hinge error,
with the same draws at every S_1. In float32. The authors' layers and step sizes are not
known; these are chosen.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.frame import (
    Check,
    Claim,
    Report,
    check_at_least,
    experiment,
    figure,
    layer_marker,
    name_ends,
    program,
    table,
)
from experiments.shared.patterns import (
    PatternEnsemble,
    TrainedEnsemble,
    check_sums,
    means_of,
    over_seeds,
    scores_at_sums,
    scores_on,
)
from icltheory.patterns import (
    DeepPatternTransformer,
    circulant_tasks,
    miss_probability,
    neuron_parts,
    scores,
    train,
)
from icltheory.plotting.style import COLOURS

# Purpose of the keys of the prompts over training (see ``PatternEnsemble.keys``).
PROBE = 6


@dataclasses.dataclass(frozen=True)
class Layers(PatternEnsemble):
    """Data, initialisation and training of models of several layers."""

    num_layers: int = 3  # number L of layers
    neuron_scale: float = 0.1  # standard deviation of neurons and read-out at the start
    attention_noise: float = 0.02  # standard deviation of what is added to identities
    steps: int = 900  # training steps
    step_size: float = 1e-3  # step size of Adam
    batch_size: int = 64  # prompts a step
    record_every: int = 25  # steps between snapshots
    decay: float = 0.99  # Adam's decay of squared gradients

    def __post_init__(self):
        super().__post_init__()
        check_at_least(self, 0, "neuron_scale", "attention_noise")
        if not 0 < self.decay < 1:
            raise ValueError(f"decay: expected a number in (0, 1), got {self.decay}")

    def model(self) -> Any:
        """The model."""
        return DeepPatternTransformer(self.num_layers, self.num_neurons)

    def start_of(self, key: Any, task: Any) -> dict[str, Any]:
        """Initial parameters of one seed."""
        names = ("attention_scale", "attention_noise", "neuron_scale")
        scales = {name: getattr(self, name) for name in names}
        return self.model().init(task, key=key, **scales)


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured."""

    layers: Layers  # the models and their training, on the many tasks
    sums: tuple[float, ...]  # coefficient sums S_1 of the tests out of domain
    draws: int  # draws of the shifted patterns at each sum
    prompts: int  # prompts of a draw; draws differ more than prompts do
    probe_prompts: int  # prompts on which attention is measured along training
    ring: tuple[int, ...] = (1,)  # shifts of the second, smaller set of training tasks
    high: float = 1.1  # the sum that another is compared with, at least 1
    low: float = 0.5  # the one that is compared with it, below 1
    num_examples: int = 20  # contexts l of a test prompt
    relevant_fraction: float = 0.8  # alpha' of a test

    def __post_init__(self):
        check_at_least(self, 1, "prompts", "probe_prompts", "num_examples")
        check_at_least(self, 2, "draws")
        layers, low, high = self.layers, self.low, self.high
        if len(layers.seeds) < 2:
            raise ValueError(
                "layers.seeds: expected at least two seeds (for intervals), "
                f"got {layers.seeds}"
            )
        circulant_tasks(layers.num_relevant, self.ring)
        shifts, most = layers.shifts, layers.num_relevant - 1
        if len(shifts) >= most:
            raise ValueError(
                f"layers.shifts: expected fewer than {most}, so that some tasks are "
                f"unseen, got {shifts}"
            )
        if len(self.ring) >= len(shifts):
            raise ValueError(
                f"ring: expected fewer shifts than {shifts}, got {self.ring}"
            )
        check_sums(layers, self.sums)
        for name, value in (("high", high), ("low", low)):
            if value not in self.sums:
                raise ValueError(
                    f"{name}: expected one of the sums {self.sums}, got {value}"
                )
        if not low < 1 <= high:
            raise ValueError(f"low, high: expected low < 1 <= high, got {low}, {high}")
        if not 0 < self.relevant_fraction <= 1:
            raise ValueError(
                "relevant_fraction: expected a number in (0, 1], "
                f"got {self.relevant_fraction}"
            )


_SUMS = (1.4, 1.3, 1.1, 1.0, 0.9, 0.7, 0.5, 0.0, -0.5, -1.0)
_TEN = tuple(range(10))
# The authors' figures run to 1600 epochs; the size of an epoch is not known.
_PAPER = Layers(seeds=_TEN, steps=1600, batch_size=128, record_every=50)
PRESETS = {
    "cpu": Config(Layers(seeds=(0, 1, 2)), _SUMS, 32, 48, 256),
    "gpu": Config(Layers(seeds=_TEN), _SUMS, 256, 256, 2048),
    "paper": Config(_PAPER, _SUMS, 256, 256, 2048),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1 min, 2 cores"}


# --- what is measured, for each set of training tasks


def train_layers(layers: Layers) -> TrainedEnsemble:
    """Trains the models of all seeds in one program, in full float32 precision."""
    jax.config.update("jax_default_matmul_precision", "highest")
    names = ("batch_size", "num_examples", "record_every")
    sizes: dict[str, Any] = {name: getattr(layers, name) for name in names}
    sizes["rule"] = optax.adam(layers.step_size, b2=layers.decay)

    def one(task, params, key):
        return train(layers.model(), task, params, layers.steps, key=key, **sizes)

    tasks = layers.tasks()
    path = jax.vmap(one)(tasks, layers.start(tasks), layers.keys(2))
    return TrainedEnsemble(layers, tasks, jax.block_until_ready(path))


def measure(config: Config, trained: TrainedEnsemble) -> dict[str, Any]:
    """Arrays (seeds, steps, ...) along training, and the errors of the last snapshot.

    ``label norm`` and ``label angle`` (to q or -q, whichever is nearer, over pi) are of
    the label part of each row of W_O W_V, (..., layers, m). ``inside`` are means on
    tasks never trained on, ``outside`` those out of domain, (seeds, sums, draws).
    """

    def one(task, _, key, snapshots):
        asked = task.with_(relevant_fraction=config.relevant_fraction)
        prompt = asked.sample(key, config.num_examples, config.probe_prompts)

        def look(params):
            def parts(W_O, W_V, W_U):
                weights = {"W_O": W_O, "W_V": W_V, "a": params["w"] @ W_U}
                found = neuron_parts(weights, task)
                angle = jnp.minimum(found.label_angle, jnp.pi - found.label_angle)
                return found.label_norm, angle / jnp.pi

            found = scores(trained.model, params, prompt)
            labels = jax.vmap(parts)(*(params[name] for name in ("W_O", "W_V", "W_U")))
            return found.attention_mass, found.hinge, *labels

        return jax.lax.map(look, snapshots)

    keys = trained.ensemble.keys(PROBE)
    along = over_seeds(one, trained, keys, trained.path.params)
    names = ("attention", "hinge", "label norm", "label angle")
    found: dict[str, Any] = dict(zip(names, map(np.asarray, along), strict=True))
    names = ("num_examples", "relevant_fraction")
    tests: dict[str, Any] = {name: getattr(config, name) for name in names}
    inside = means_of(scores_on(trained, config.draws * config.prompts, **tests))
    outside = scores_at_sums(
        trained, config.sums, config.draws, config.prompts, **tests
    )
    for name, means in (("inside", inside), ("outside", outside)):
        found[name] = {key: np.asarray(x) for key, x in means.items()}
    return found | {"steps": trained.steps} | summary(trained.steps, found)


def summary(steps: list[int], found: dict) -> dict[str, np.ndarray]:
    """By seed and layer: ratio of label norms, fall of their angle, step of the jump.

    Norms and angles are averaged over neurons, at the end against the start. The jump
    is the first recorded step at which attention exceeds 0.7; NaN if it never does.
    """
    norm, angle = (found[f"label {name}"].mean(axis=-1) for name in ("norm", "angle"))
    above = found["attention"] > 0.7
    first = np.asarray(steps, float)[np.argmax(above, axis=1)]
    return {
        "growth": norm[:, -1] / norm[:, 0],
        "turned": angle[:, 0] - angle[:, -1],
        "jump": np.where(above.any(axis=1), first, np.nan),
    }


def estimate(values: Any) -> tuple[float, float, np.ndarray]:
    """Mean of values (seeds, draws), its standard error over draws, mean of each seed.

    Each model has its own draws; the error is that for these models.
    """
    values = np.asarray(values, float)
    seeds, draws = values.shape
    error = np.sqrt(values.var(axis=1, ddof=1).sum() / draws) / seeds
    return float(values.mean()), float(error), values.mean(axis=1)


def at_sum(config: Config, found: dict, name: str, value: float) -> np.ndarray:
    """The means of each draw at one S_1, (seeds, draws)."""
    return found["outside"][name][:, config.sums.index(value)]


# --- what is reported


def checks(config: Config, measured: dict[str, dict]) -> list[Check]:
    """Attention and error at initialisation, and Proposition 1."""
    verdicts, layers = [], config.layers
    prompts = len(layers.seeds) * config.draws * config.prompts
    missed = float(miss_probability(config.relevant_fraction, config.num_examples))
    # A context of the same pattern has weight exp(s), with s the first logit, others 1.
    uniform = config.relevant_fraction / 2
    weight = uniform * np.exp((layers.attention_scale * layers.scale) ** 2)
    expected = weight / (weight + 1 - uniform)
    for name, found in measured.items():
        start, end = found["attention"][:, 0], found["attention"][:, -1]
        first = f"{name}: attention of the first layer at the start"
        last = f"{name}: 1 minus the attention of the best layer at the end, largest"
        without = f"{name}: rate of prompts without a context of the query's pattern"
        rate, near = found["inside"]["missed"].mean(), 4 * (missed / prompts) ** 0.5
        verdicts += [
            Check(first, start[:, 0].mean(), expected, "within", 0.02),
            Check(last, 1 - end.max(axis=1).min(), 0.05, "<="),
            Check(without, rate, missed, "within", near),
        ]
    return verdicts


def claims(config: Config, measured: dict[str, dict]) -> list[Claim]:
    """Claims of the figures, and what was measured; they do not affect the status."""
    stated = []
    for name, found in measured.items():
        stated += _layer_claims(name, found)
        for what, title in (("error", "0-1 error"), ("hinge", "hinge error")):
            low, high = (
                at_sum(config, found, what, x) for x in (config.low, config.high)
            )
            mean, error, by_seed = estimate(low - high)  # paired by draw
            seeds = ", ".join(f"{x:.4f}" for x in by_seed)
            claim = Claim(
                claim=f"{name}: {title} is larger at S_1 = {config.low:g} than at "
                f"{config.high:g} (Figure 12)",
                expected="paired difference above two standard errors over draws, and "
                "of one sign",
                measured=f"difference {mean:.4f} ({error:.4f}); by seed {seeds}",
                held=mean > 2 * error and (by_seed > 0).all(),
            )
            stated.append(claim)
    many, ring = measured
    errors = (at_sum(config, measured[x], "error", config.high) for x in (many, ring))
    (a, a_error, _), (b, b_error, _) = map(estimate, errors)
    worse = Claim(
        claim=f"{ring} generalise worse than {many} out of domain (Theorem 1)",
        expected=f"0-1 error at S_1 = {config.high:g}, by two standard errors over "
        "draws",
        measured=f"{b:.4f} ({b_error:.4f}) against {a:.4f} ({a_error:.4f})",
        held=b - a > 2 * np.hypot(a_error, b_error),
    )
    return [*stated, worse]


def _layer_claims(name: str, found: dict) -> list[Claim]:
    start, end = found["attention"][:, 0], found["attention"][:, -1]
    grown, turned = found["growth"], found["turned"]
    masses = zip(start.mean(0), end.mean(0), strict=True)
    labels = zip(grown.mean(0), turned.mean(0), strict=True)
    one = len(set(np.argmax(turned, axis=1))) == 1
    second = np.sort(turned, axis=1)[:, -2]
    return [
        Claim(
            claim=f"{name}: attention concentrates in every layer (Figures 21-23)",
            expected="rises to .75 or more in all layers and seeds "
            "(figures .52 .43 .43 -> .85 .77 .88; sheet .84 .997 .998)",
            measured=", ".join(f"{a:.3f} -> {b:.3f}" for a, b in masses),
            held=(end >= 0.75).all(),
        ),
        Claim(
            claim=f"{name}: label parts grow in every layer, and turn to q in one only "
            "(Figures 24-26)",
            expected="all norms grow; the largest turn is that of one layer in every "
            "seed, twice the next",
            measured=", ".join(f"x{g:.2f}, by {a:.3f} pi" for g, a in labels),
            held=(grown > 1).all() and one and (turned.max(axis=1) > 2 * second).all(),
        ),
    ]


def tables(config: Config, measured: dict[str, dict]) -> list[Any]:
    """Attention and labels by layer, and errors by coefficient sum."""
    rows = []
    for name, found in measured.items():
        columns = {"start": found["attention"][:, 0], "end": found["attention"][:, -1]}
        columns |= {key: found[key] for key in ("jump", "growth", "turned")}
        for layer in range(found["attention"].shape[2]):
            cells = {key: _spread(x[:, layer]) for key, x in columns.items()}
            rows.append({"tasks": name, "layer": layer + 1, **cells})
    by_layer = {
        "tasks": "{tasks}",
        "layer": "{layer}",
        "attention at the start": "{start}",
        "at the end": "{end}",
        "step past .7": "{jump}",
        "label norm grows": "{growth}",
        "angle / pi falls by": "{turned}",
    }
    lines, by_sum = [], {"S_1": "{head}"}
    for value in (*config.sums, None):
        line = {"head": "in domain" if value is None else f"{value:g}"}
        for i, found in enumerate(measured.values()):
            for what in ("error", "hinge"):
                line[f"{what}{i}"] = f"{found['inside'][what].mean():.4f}"
                if value is not None:
                    mean, error, _ = estimate(at_sum(config, found, what, value))
                    line[f"{what}{i}"] = f"{mean:.4f} ({error:.4f})"
            line[f"share{i}"] = ""
            if value is not None:
                share = (at_sum(config, found, "error", value) > 0.01).mean()
                line[f"share{i}"] = f"{share:.2f}"
        lines.append(line)
    for i, name in enumerate(measured):
        for head, key in (("0-1", "error"), ("hinge", "hinge"), ("share", "share")):
            by_sum[f"{name}: {head}"] = f"{{{key}{i}}}"
    title = (
        "out of domain: mean over seeds and draws (standard error over draws), "
        "share of draws with a 0-1 error above .01"
    )
    first = table(rows, by_layer, "by layer: mean over seeds (smallest, largest)")
    return [first, table(lines, by_sum, title)]


def _spread(values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return "never"
    return f"{known.mean():.3g} ({known.min():.3g}, {known.max():.3g})"


# --- what is drawn


def draw_attention(measured: dict[str, dict], title: str) -> Any:
    """The attention mass of every layer over training (Figures 21 to 23)."""
    with figure(measured, 2, title, 2.9, sharey=True) as (shown, _):
        for axes, found in zip(shown, measured.values(), strict=True):
            ends = []
            for layer, by_seed in enumerate(np.moveaxis(found["attention"], 2, 0)):
                colour, mean = COLOURS[1 + layer % 6], by_seed.mean(0)
                thin = {"linewidth": 0.7, "alpha": 0.5}
                axes.plot(found["steps"], by_seed.T, color=colour, **thin)
                axes.plot(found["steps"], mean, color=colour)
                ends.append((float(mean[-1]), f"layer {layer + 1}", colour))
            axes.set(xlabel="step", ylim=(0, 1.02))
            name_ends(axes, ends)
        shown[0].set_ylabel("share of the attention")
    return shown[0].figure


def draw_labels(found: dict, title: str) -> Any:
    """Norm of each neuron's label part against its angle, at four snapshots.

    It shows the first seed, by layer (Figures 24 to 26).
    """
    import matplotlib.pyplot as plt

    steps, norms, angles = (found[x] for x in ("steps", "label norm", "label angle"))
    titles = [f"layer {layer + 1}" for layer in range(norms.shape[2])]
    places = np.unique(np.linspace(0, len(steps) - 1, 4).round().astype(int))
    palette = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(places)))
    with figure(titles, 3, title, 2.8, sharey=True) as (shown, entries):
        for layer, axes in enumerate(shown):
            for order, (colour, place) in enumerate(zip(palette, places, strict=True)):
                mark = {"marker": layer_marker(order), "markersize": 3, "alpha": 0.7}
                points = angles[0, place, layer], norms[0, place, layer]
                (drawn,) = axes.plot(*points, color=colour, linestyle="", **mark)
                entries[f"step {steps[place]}"] = drawn
            axes.set(xlabel=r"angle to $\pm q$, over $\pi$", xlim=(0, 0.52))
        shown[0].set_ylabel("norm of the label part")
        shown[0].set_ylim(bottom=0)
    return shown[0].figure


def draw_sums(config: Config, measured: dict[str, dict], title: str) -> Any:
    """Out-of-domain errors against the coefficient sum (Figure 12)."""
    panels, sums = {"0-1 error": "error", "hinge error": "hinge"}, sorted(config.sums)
    with figure(panels, 2, title, 3.0) as (shown, _):
        for axes, (label, what) in zip(shown, panels.items(), strict=True):
            ends = []
            for order, (name, found) in enumerate(measured.items(), 1):
                known = [estimate(at_sum(config, found, what, x)) for x in sums]
                mean, error, by_seed = (np.array(x) for x in zip(*known, strict=True))
                colour = COLOURS[order % len(COLOURS)]
                # Points are shifted sideways, so that error bars do not overlap.
                places = np.asarray(sums) + 0.03 * (order - (1 + len(measured)) / 2)
                mark = {"marker": layer_marker(order), "markersize": 5, "capsize": 2}
                look = {"color": colour, "linewidth": 1.3, **mark}
                axes.errorbar(places, mean, 2 * error, **look)
                axes.plot(places, by_seed, "_", color=colour, markersize=6)
                ends.append((float(mean[-1]), name, colour))
            axes.axvline(1, color="grey", linestyle=":", linewidth=0.9)
            axes.set(xlabel="coefficient sum $S_1$", ylabel=label)
            axes.set_ylim(bottom=0)
            name_ends(axes, ends)
    return shown[0].figure


def figures(config: Config, measured: dict[str, dict]) -> dict[str, Any]:
    """Attention and labels along training, and errors out of domain."""
    seeds, first = len(config.layers.seeds), next(iter(measured))
    return {
        "attention.png": draw_attention(
            measured,
            f"Attention on contexts of the query's pattern: mean of {seeds} seeds; "
            "thin: each seed",
        ),
        "labels.png": draw_labels(
            measured[first], f"Label parts of the neurons, {first}, one seed"
        ),
        "sums.png": draw_sums(
            config,
            measured,
            f"Errors of {config.layers.num_layers} layers out of domain: mean of "
            f"{seeds} seeds, {config.draws} draws each\n"
            "(bars: two standard errors over draws; dashes: each seed)",
        ),
    }


def numbers(found: dict) -> dict[str, Any]:
    """What is stored of one set of tasks."""

    def errors(name):
        return {what: found[name][what].tolist() for what in ("error", "hinge")}

    norm, angle = found["label norm"].mean(-1), found["label angle"].mean(-1)
    return {
        "steps": found["steps"],
        "attention [seed][step][layer]": found["attention"].tolist(),
        "hinge [seed][step]": found["hinge"].tolist(),
        "label norm, mean over neurons": norm.tolist(),
        "label angle / pi, mean over neurons": angle.tolist(),
        "unseen tasks": errors("inside"),
        "out of domain [seed][sum][draw]": errors("outside"),
    }


def report(config: Config, measured: dict[str, dict]) -> Report:
    """Numbers, checks, claims, tables and figures of the run."""
    return Report(
        {
            "sums": list(config.sums),
            "sets": {name: numbers(found) for name, found in measured.items()},
            "precision": "float32",
        },
        checks=checks(config, measured),
        tables=tables(config, measured),
        claims=claims(config, measured),
        claims_title="what is read off the figures",
        figures=figures(config, measured),
        axes={
            "sets.*.attention [seed][step][layer]": ["seed", "training step", "layer"],
            "sets.*.hinge [seed][step]": ["seed", "training step"],
        },
    )


@experiment(PRESETS)
def main(config, run):
    """Trains and measures models on both sets of tasks, and reports."""
    layers, measured = config.layers, {}
    for shifts in (layers.shifts, config.ring):
        name = f"{layers.num_relevant * len(shifts)} tasks"
        with run.phase(f"{name}, training"):
            trained = train_layers(dataclasses.replace(layers, shifts=shifts))
        with run.phase(f"{name}, measuring"):
            measured[name] = measure(config, trained)
    return report(config, measured)


program(__name__, main)
