"""Three layers on pattern tasks: attention, labels, errors (Figures 21 to 26).

A model a seed, trained by Adam on 18 of the 30 tasks and on a ring of 6: attention and
label parts of W_O W_V in every layer, then errors on shifted patterns of sum S_1, with
the same draws for all. The authors' layers and step sizes are not known.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared import patterns as shared
from experiments.shared.patterns import PatternEnsemble, TrainedEnsemble
from icltheory import patterns
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
    batch_size: int = 64  # prompts per step
    record_every: int = 25  # steps between snapshots
    decay: float = 0.99  # Adam's decay of squared gradients

    def __post_init__(self):
        super().__post_init__()
        check_at_least(self, 0, "neuron_scale", "attention_noise")
        frame.check_each(self, "in (0, 1)", "decay")

    def model(self) -> Any:
        """The model."""
        return patterns.DeepPatternTransformer(self.num_layers, self.num_neurons)

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
        seeds, shifts, most = layers.seeds, layers.shifts, layers.num_relevant - 1
        pair = "at least two seeds (for intervals)"
        expect(len(seeds) > 1, "layers.seeds", pair, seeds)
        patterns.circulant_tasks(layers.num_relevant, self.ring)
        unseen = f"fewer than {most}, so that some tasks are unseen"
        expect(len(shifts) < most, "layers.shifts", unseen, shifts)
        fewer = f"fewer shifts than {shifts}"
        expect(len(self.ring) < len(shifts), "ring", fewer, self.ring)
        shared.check_sums(layers, self.sums)
        for name, value in (("high", high), ("low", low)):
            expect(value in self.sums, name, f"one of the sums {self.sums}", value)
        expect(low < 1 <= high, "low, high", "low < 1 <= high", f"{low}, {high}")
        frame.check_each(self, "in (0, 1]", "relevant_fraction")


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


def train_layers(layers: Layers) -> TrainedEnsemble:
    """Trains the models of all seeds in one program, in full float32 precision."""
    jax.config.update("jax_default_matmul_precision", "highest")
    adam, tasks = optax.adam(layers.step_size, b2=layers.decay), layers.tasks()
    one = functools.partial(layers.train, rule=adam)
    path = jax.vmap(one)(tasks, layers.start(tasks), layers.keys(2))
    return TrainedEnsemble(layers, tasks, jax.block_until_ready(path))


def label_parts(params: Any, task: Any) -> tuple[jax.Array, jax.Array]:
    """Norm and angle / pi to q or -q of label parts of rows of W_O W_V, (layers, m)."""

    def of_layer(W_O, W_V, W_U):
        weights = {"W_O": W_O, "W_V": W_V, "a": params["w"] @ W_U}
        found = patterns.neuron_parts(weights, task)
        angle = jnp.minimum(found.label_angle, jnp.pi - found.label_angle)
        return found.label_norm, angle / jnp.pi

    return jax.vmap(of_layer)(*(params[name] for name in ("W_O", "W_V", "W_U")))


def measure(config: Config, trained: TrainedEnsemble) -> dict[str, Any]:
    """Arrays (seeds, steps, ...) along training, and errors of the last snapshot."""

    # ``label norm`` and ``label angle`` come from :func:`label_parts`. ``inside`` are
    # means on tasks never trained on, ``outside`` those out of domain, (seeds, sums,
    # draws).
    def one(task, _, key, snapshots):
        asked = task.with_(relevant_fraction=config.relevant_fraction)
        prompt = asked.sample(key, config.num_examples, config.probe_prompts)

        def look(params):
            found = patterns.scores(trained.model, params, prompt)
            return found.attention_mass, found.hinge, *label_parts(params, task)

        return jax.lax.map(look, snapshots)

    keys = trained.ensemble.keys(PROBE)
    along = shared.over_seeds(one, trained, keys, trained.path.params)
    names = ("attention", "hinge", "label norm", "label angle")
    found: dict[str, Any] = dict(zip(names, along, strict=True))
    names, sizes = ("num_examples", "relevant_fraction"), (config.draws, config.prompts)
    tests: dict[str, Any] = {name: getattr(config, name) for name in names}
    inside = shared.scores_on(trained, config.draws * config.prompts, **tests)
    found["inside"] = shared.means_of(inside)
    found["outside"] = shared.scores_at_sums(trained, config.sums, *sizes, **tests)
    found = jax.tree.map(np.asarray, found)
    return found | {"steps": trained.steps} | summary(trained.steps, found)


def summary(steps: list[int], found: dict) -> dict[str, np.ndarray]:
    """By seed and layer: ratio of label norms, fall of angles, step of the jump."""
    norm, angle = (found[f"label {name}"].mean(axis=-1) for name in ("norm", "angle"))
    # The first recorded step at which attention exceeds 0.7; NaN if it never does.
    above = found["attention"] > 0.7
    first = np.asarray(steps, float)[np.argmax(above, axis=1)]
    turned, jump = (
        angle[:, 0] - angle[:, -1],
        np.where(above.any(axis=1), first, np.nan),
    )
    return {"growth": norm[:, -1] / norm[:, 0], "turned": turned, "jump": jump}


def estimate(values: Any) -> tuple[float, float, np.ndarray]:
    """Mean of values (seeds, draws), its standard error over draws, mean by seed."""
    values = np.asarray(values, float)
    seeds, draws = values.shape
    # Each model has its own draws; the error is that for these models.
    error = np.sqrt(values.var(axis=1, ddof=1).sum() / draws) / seeds
    return float(values.mean()), float(error), values.mean(axis=1)


def at_sum(config: Config, found: dict, name: str, value: float) -> np.ndarray:
    """The means of each draw at one S_1, (seeds, draws)."""
    return found["outside"][name][:, config.sums.index(value)]


def checks(config: Config, measured: dict[str, dict]) -> list[Check]:
    """Attention and error at initialisation, and Proposition 1."""
    verdicts, layers, share = [], config.layers, config.relevant_fraction
    prompts = len(layers.seeds) * config.draws * config.prompts
    missed = float(patterns.miss_probability(share, config.num_examples))
    # A context of the same pattern has weight exp(s), with s the first logit, others 1.
    uniform = share / 2
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
    stated, sums = [], f"S_1 = {config.low:g} than at {config.high:g}"
    by = "paired difference above two standard errors over draws, and of one sign"
    for name, found in measured.items():
        stated += _layer_claims(name, found)
        for what, title in (("error", "0-1 error"), ("hinge", "hinge error")):
            low = at_sum(config, found, what, config.low)
            high = at_sum(config, found, what, config.high)
            mean, error, by_seed = estimate(low - high)  # paired by draw
            seeds = ", ".join(f"{x:.4f}" for x in by_seed)
            words = f"{name}: {title} is larger at {sums} (Figure 12)"
            said = f"difference {mean:.4f} ({error:.4f}); by seed {seeds}"
            held = mean > 2 * error and (by_seed > 0).all()
            stated.append(Claim(words, said, held, by))
    many, ring = measured
    errors = (at_sum(config, x, "error", config.high) for x in measured.values())
    (a, a_error, _), (b, b_error, _) = map(estimate, errors)
    words = f"{ring} generalise worse than {many} out of domain (Theorem 1)"
    by = f"0-1 error at S_1 = {config.high:g}, by two standard errors over draws"
    said = f"{b:.4f} ({b_error:.4f}) against {a:.4f} ({a_error:.4f})"
    held = b - a > 2 * np.hypot(a_error, b_error)
    return [*stated, Claim(words, said, held, by)]


def _layer_claims(name: str, found: dict) -> list[Claim]:
    start, end = found["attention"][:, 0], found["attention"][:, -1]
    grown, turned = found["growth"], found["turned"]
    masses = zip(start.mean(0), end.mean(0), strict=True)
    labels = zip(grown.mean(0), turned.mean(0), strict=True)
    one = len(set(np.argmax(turned, axis=1))) == 1
    twice = turned.max(axis=1) > 2 * np.sort(turned, axis=1)[:, -2]
    claim = f"{name}: attention concentrates in every layer (Figures 21-23)"
    by = "rises to .75 or more in all layers and seeds "
    by += "(figures .52 .43 .43 -> .85 .77 .88; sheet .84 .997 .998)"
    said = ", ".join(f"{a:.3f} -> {b:.3f}" for a, b in masses)
    first = Claim(claim, said, (end >= 0.75).all(), by)
    claim = f"{name}: label parts grow in every layer, and turn to q in one only "
    by = "all norms grow; the largest turn is that of one layer in every seed, twice "
    said = ", ".join(f"x{g:.2f}, by {a:.3f} pi" for g, a in labels)
    held = (grown > 1).all() and one and twice.all()
    return [first, Claim(f"{claim}(Figures 24-26)", said, held, f"{by}the next")]


def tables(config: Config, measured: dict[str, dict]) -> list[Any]:
    """Attention and labels by layer, and errors by coefficient sum."""
    rows, lines = [], []
    for name, found in measured.items():
        masses = found["attention"]
        columns = {"attention at the start": masses[:, 0], "at the end": masses[:, -1]}
        columns |= {"step past .7": found["jump"], "label norm grows": found["growth"]}
        columns["angle / pi falls by"] = found["turned"]
        for layer in range(masses.shape[2]):
            cells = {head: _spread(x[:, layer]) for head, x in columns.items()}
            rows.append({"tasks": name, "layer": layer, **cells})
    for value in config.sums:
        line = {"S_1": f"{value:g}"}
        for name, found in measured.items():
            errors = at_sum(config, found, "error", value)
            hinges = estimate(at_sum(config, found, "hinge", value))
            line[f"{name}: 0-1"] = "{:.4f} ({:.4f})".format(*estimate(errors))
            line[f"{name}: hinge"] = "{:.4f} ({:.4f})".format(*hinges)
            line[f"{name}: share"] = f"{(errors > 0.01).mean():.2f}"
        lines.append(line)
    inside = {"S_1": "in domain"}
    for name, found in measured.items():
        for head, what in (("0-1", "error"), ("hinge", "hinge")):
            inside[f"{name}: {head}"] = f"{found['inside'][what].mean():.4f}"
        inside[f"{name}: share"] = ""
    title = "out of domain: mean over seeds and draws (standard error over draws), "
    title += "share of draws with a 0-1 error above .01"
    by_layer = "by layer: mean over seeds (smallest, largest)"
    both = frame.table(rows, title=by_layer), frame.table([*lines, inside], title=title)
    return list(both)


def _spread(values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return "never"
    return f"{known.mean():.3g} ({known.min():.3g}, {known.max():.3g})"


def draw_attention(measured: dict[str, dict], title: str) -> Any:
    """The attention mass of every layer over training (Figures 21 to 23)."""
    with frame.figure(measured, 2, title, 2.9, sharey=True) as (shown, _):
        for axes, found in zip(shown, measured.values(), strict=True):
            ends, steps = [], found["steps"]
            for layer, by_seed in enumerate(np.moveaxis(found["attention"], 2, 0)):
                colour, mean = COLOURS[1 + layer % 6], by_seed.mean(0)
                axes.plot(steps, by_seed.T, color=colour, linewidth=0.7, alpha=0.5)
                axes.plot(steps, mean, color=colour)
                ends.append((float(mean[-1]), f"layer {layer}", colour))
            axes.set(xlabel="step", ylim=(0, 1.02))
            frame.name_ends(axes, ends)
        shown[0].set_ylabel("share of the attention")
    return shown[0].figure


def draw_sums(config: Config, measured: dict[str, dict], title: str) -> Any:
    """Out-of-domain errors against the coefficient sum (Figure 12)."""
    panels, sums = {"0-1 error": "error", "hinge error": "hinge"}, sorted(config.sums)
    with frame.figure(panels, 2, title, 3.0) as (shown, _):
        for axes, (label, what) in zip(shown, panels.items(), strict=True):
            ends = []
            for order, (name, found) in enumerate(measured.items(), 1):
                known = [estimate(at_sum(config, found, what, x)) for x in sums]
                mean, error, by_seed = (np.array(x) for x in zip(*known, strict=True))
                colour = COLOURS[order % len(COLOURS)]
                # Points are shifted sideways, so that error bars do not overlap.
                places = np.asarray(sums) + 0.03 * (order - (1 + len(measured)) / 2)
                look = {"marker": frame.layer_marker(order), "color": colour}
                look |= {"linewidth": 1.3, "markersize": 5, "capsize": 2}
                axes.errorbar(places, mean, 2 * error, **look)
                axes.plot(places, by_seed, "_", color=colour, markersize=6)
                ends.append((float(mean[-1]), name, colour))
            axes.axvline(1, color="grey", linestyle=":", linewidth=0.9)
            axes.set(xlabel="coefficient sum $S_1$", ylabel=label)
            axes.set_ylim(bottom=0)
            frame.name_ends(axes, ends)
    return shown[0].figure


def numbers(found: dict) -> dict[str, Any]:
    stored = {"steps": found["steps"], "hinge [seed][step]": found["hinge"]}
    stored["attention [seed][step][layer]"] = found["attention"]
    for label, unit in (("label norm", ""), ("label angle", " / pi")):
        stored[f"{label}{unit}, mean over neurons"] = found[label].mean(-1)
    names = {"inside": "unseen tasks", "outside": "out of domain [seed][sum][draw]"}
    for where, name in names.items():
        stored[name] = {what: found[where][what] for what in ("error", "hinge")}
    return stored


def report(config: Config, measured: dict[str, dict]) -> Report:
    sets = {name: numbers(found) for name, found in measured.items()}
    seeds = f"{len(config.layers.seeds)} seeds"
    attention = "Attention on contexts of the query's pattern: mean of "
    attention += f"{seeds}; thin: each seed"
    errors = f"Errors of {config.layers.num_layers} layers out of domain: mean of "
    errors += f"{seeds}, {config.draws} draws each\n"
    errors += "(bars: two standard errors over draws; dashes: each seed)"
    return Report(
        {"sums": config.sums, "sets": sets, "precision": "float32"},
        checks=checks(config, measured),
        tables=tables(config, measured),
        claims=claims(config, measured),
        claims_title="what is read off the figures",
        figures={
            "attention.png": draw_attention(measured, attention),
            "sums.png": draw_sums(config, measured, errors),
        },
        axes={
            "sets.*.attention [seed][step][layer]": ["seed", "training step", "layer"],
            "sets.*.hinge [seed][step]": ["seed", "training step"],
        },
    )


@frame.experiment(PRESETS)
def main(config, run):
    layers, measured = config.layers, {}
    for shifts in (layers.shifts, config.ring):
        name = f"{layers.num_relevant * len(shifts)} tasks"
        with run.phase(f"{name}, training"):
            trained = train_layers(dataclasses.replace(layers, shifts=shifts))
        with run.phase(f"{name}, measuring"):
            measured[name] = measure(config, trained)
    return report(config, measured)


frame.program(__name__, main)
