"""Recurrent learners, Bayes and a trained transformer, with and without drift.

Exact risks of linear attention and the delta rule, with and without a gate, for one
task and for tasks that drift, beside Mesa, a trained softmax transformer and Bayes.
Then the gates of trained layers, compared with those that the exact risks predict.
"""

import dataclasses
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Report, check_at_least, largest
from icltheory import models, training
from icltheory import regression as reg
from icltheory.plotting import COLOURS, METHODS, Curve, error_curves
from icltheory.statistics import Estimate

KINDS = {"linear attention": reg.GatedLinearAttention, "delta rule": reg.DeltaRule}
SOFTMAX = "softmax transformer"
LOOKS = {
    "linear attention": COLOURS[1],
    "gated linear attention": COLOURS[0],
    "delta rule": COLOURS[3],
    "gated delta rule": COLOURS[4],
    "Mesa": COLOURS[5],
    SOFTMAX: COLOURS[6],
    "Bayes": METHODS["Bayes"],
}
GRID, ROUNDS = 17, 12  # of the search for step sizes and gates
PENALTIES, FORGETTINGS = (0.1, 0.25, 0.5, 1.0), (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)


@dataclasses.dataclass(frozen=True)
class Config:
    """The two sources, and how models are trained."""

    dim: int = 5  # input dimension d
    num_examples: int = 20  # most in-context examples N
    noise_var: float = 0.25  # noise variance sigma^2
    persistence: float = 0.95  # correlation a of a task with the next one
    # persistences for which layers are trained
    persistences: tuple[float, ...] = (0.8, 0.9, 0.95, 1.0)
    seeds: tuple[int, ...] = (0, 1)  # seeds of the trained models
    layer_steps: int = 800  # training steps of a layer
    layer_batch: int = 128  # its prompts per step
    softmax_steps: int = 1500  # training steps of a transformer
    softmax_batch: int = 32  # its prompts per step
    width: int = 48  # its width
    num_layers: int = 2  # its layers
    num_prompts: int = 8192  # other prompts on which models are compared

    def __post_init__(self):
        counts = ("dim", "num_examples", "layer_steps", "layer_batch", "width")
        counts += ("softmax_steps", "softmax_batch", "num_layers")
        check_at_least(self, 1, *counts)
        check_at_least(self, 2, "num_prompts")
        check_at_least(self, 0, "noise_var")
        frame.check_each(self, "in [0, 1]", "persistence", "persistences")
        frame.check_seeds("seeds", self.seeds)


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "3 min of processor time"}


class Layer(nn.Module):
    """One recurrent layer with keys and queries K x and one gate for all tokens."""

    dim: int
    kind: str

    @nn.compact
    def __call__(self, X, y, X_query=None):
        """Answers after every prefix, (B, P)."""
        init = nn.initializers.normal(0.3)
        K = self.param("K", init, (self.dim, self.dim))
        logit = self.param("gate", nn.initializers.zeros, ())
        rule = KINDS[self.kind](1.0, jax.nn.sigmoid(logit))
        asked = X if X_query is None else X_query
        answers = partial(reg.chunked_predictions, rule, chunk_size=X.shape[1])
        return jax.vmap(answers)(X @ K.T, y, asked @ K.T)


def sources(config: Config) -> dict[str, Any]:
    """One task for all examples, and tasks that drift."""
    one = reg.LinearPopulation.isotropic(config.dim, config.noise_var)
    return {"one task": one, "tasks that drift": drift(config, config.persistence)}


def drift(config: Config, a: float) -> reg.DriftingTasks:
    return reg.DriftingTasks(config.dim, config.noise_var, a)


def tuned(kind: Any, source: Any, N: int, gate: float | None = None) -> Any:
    """The learner of least mean risk over 0 to N examples, and that risk."""
    (size, found), least = _search(kind, source, N, gate)
    return kind(float(size), float(found)), float(least[-1])


@partial(jax.jit, static_argnums=(0, 2, 3))
def _search(kind, source, N, gate):
    lengths, top = jnp.arange(N + 1), jnp.asarray([0.5, 1.0])

    def mean_risk(size, gate):
        rule = kind(jnp.full(N, size), gate)
        return jnp.mean(jax.vmap(lambda k: reg.risk(rule, source, k))(lengths))

    def zoom(centre, width):
        sides = width * jnp.linspace(-0.5, 0.5, GRID)[:, None] * top[None]
        sizes, gates = jnp.clip(centre[None] + sides, 0, top[None]).T
        gates = gates if gate is None else jnp.asarray([gate])
        found = jax.vmap(lambda s: jax.vmap(lambda g: mean_risk(s, g))(gates))(sizes)
        i, j = jnp.unravel_index(jnp.nanargmin(found), found.shape)
        return jnp.stack([sizes[i], gates[j]]), found[i, j]

    return jax.lax.scan(zoom, top / 2, jnp.asarray(0.25 ** np.arange(ROUNDS)))


def distances(rule: Any, source: Any, prompts: Any) -> jax.Array:
    """Squared distances to the Bayes answers: what a risk has above that of Bayes."""
    points = prompts.points()
    answers = (jax.vmap(f.predict_prefixes) for f in (rule, reg.Bayes(source)))
    one, bayes = (jax.jit(f)(*points) for f in answers)
    return (one - bayes) ** 2


def tuned_mesa(source: Any, prompts: Any) -> tuple[reg.Mesa, jax.Array]:
    """The best penalty and forgetting on half of the prompts, and distances on all."""
    half = len(prompts.y) // 2
    some = jax.tree.map(lambda a: a[:half], prompts)
    grid = [(p, f) for p in PENALTIES for f in FORGETTINGS]

    @jax.jit
    def mean_distance(pair):
        return jnp.mean(distances(reg.Mesa(*pair), source, some))

    best = jnp.argmin(jax.lax.map(mean_distance, jnp.asarray(grid)))
    rule = reg.Mesa(*grid[int(best)])
    return rule, distances(rule, source, prompts)[half:]


def curves(config: Config, source: Any, fits: list) -> dict[str, Any]:
    """Learners, exact and simulated risks after 0 to N examples by name."""
    N, ks = config.num_examples, range(config.num_examples + 1)
    prompts = source.sample(jax.random.key(10), N, config.num_prompts)
    made, found = {}, {}
    for name, kind in KINDS.items():
        made[name] = tuned(kind, source, N, 1.0)[0]
        made[f"gated {name}"] = tuned(kind, source, N)[0]
    for name, rule in made.items():
        found[name] = reg.estimate_risk(rule, source, ks)
    how = {"key": jax.random.key(10), "num_prompts": config.num_prompts}
    bayes = reg.estimate_risk(reg.Bayes(source), source, ks, **how)
    made["Mesa"], mesa = tuned_mesa(source, prompts)
    softmax = jnp.stack([distances(fit.model, source, prompts) for fit in fits])
    for name, own in (("Mesa", mesa), (SOFTMAX, jnp.mean(softmax, axis=0))):
        mean, error = Estimate.of(own)
        spread = jnp.hypot(error, bayes.standard_error)
        found[name] = Estimate(bayes.mean + mean, spread, np.inf, "simulated")
    found["Bayes"] = bayes
    errors = {n: reg.squared_errors(rule, prompts) for n, rule in made.items()}
    simulated = {name: Estimate.of(own) for name, own in errors.items()}
    return {"rules": made, "curves": found, "simulated": simulated}


def train_transformers(config: Config, source: Any) -> list:
    """Softmax transformers, one for each seed."""
    sizes = {"width": config.width, "num_layers": config.num_layers}
    model = models.transformer(config.dim, config.num_examples, **sizes)
    sizes = {"steps": config.softmax_steps, "batch_size": config.softmax_batch}
    return training.fit(model, source, key=keys_of(config), **sizes)


def keys_of(config: Config) -> jax.Array:
    return jax.vmap(jax.random.key)(jnp.asarray(config.seeds))


def fit_layers(config: Config, kind: str, a: float) -> list:
    """Layers trained on tasks of a persistence, one for each seed."""
    source, N, steps = drift(config, a), config.num_examples, config.layer_steps
    look = {"schedule": "cosine", "warmup_steps": steps // 10, "clip_norm": 1.0}
    sizes: Any = {"steps": steps, "batch_size": config.layer_batch, "num_examples": N}
    sizes |= {"optimizer": training.OptimizerConfig("adam", 0.02, **look)}
    layer = Layer(config.dim, kind)
    return training.fit(layer, source, key=keys_of(config), **sizes)


def train_layers(config: Config, kind: str, a: float) -> list[dict[str, float]]:
    """Gate, step size and mean risk of a trained layer, for each seed."""
    source, N, fits = drift(config, a), config.num_examples, fit_layers(config, kind, a)
    prompts = source.sample(jax.random.key(11), N, config.num_prompts)
    rows = []
    for fit in fits:
        errors = reg.squared_errors(fit.model, prompts, prefixes=True)
        risk = Estimate.of(jnp.mean(errors, axis=1))
        row = {"risk": risk.mean, "error": risk.standard_error}
        row |= {"gate": jax.nn.sigmoid(fit.model.params["gate"])}
        row |= {"size": jnp.sum(fit.model.params["K"] ** 2) / config.dim}
        rows.append({name: float(value) for name, value in row.items()})
    return rows


def gates(config: Config, run: Any) -> list[dict[str, Any]]:
    """Predicted and trained gates of both kinds of layers by persistence."""
    cases = [(kind, a) for kind in KINDS for a in config.persistences]
    rows = []
    for kind, a in run.track(cases, "layers", unit="settings"):
        trained = train_layers(config, kind, a)
        with jax.enable_x64(True):
            rule, least = tuned(KINDS[kind], drift(config, a), config.num_examples)
        row = {"kind": kind, "persistence": a, "predicted": float(rule.gate)}
        row |= {"size": float(rule.step_size), "least": least, "trained": trained}
        rows.append(row)
    return rows


def predicted_line(config: Config) -> dict[str, dict[str, list[float]]]:
    """The predicted gates along the persistence."""
    low = min(config.persistences)
    along = np.unique([*np.linspace(low, 1, 13), *config.persistences])
    N, found = config.num_examples, {}
    for name, kind in KINDS.items():
        best = [tuned(kind, drift(config, a), N)[0].gate for a in along]
        found[name] = {"persistence": along.tolist(), "gate": [float(g) for g in best]}
    return found


def checks(config: Config, found: dict, rows: list[dict]) -> list[Check]:
    """Trained gates, trained risks, simulations and the order of the learners."""
    trained = [(r, t) for r in rows for t in r["trained"]]
    apart = largest(abs(t["gate"] - r["predicted"]) for r, t in trained)
    above = [
        (t["risk"] - r["least"], t["error"], 0.02 * r["least"]) for r, t in trained
    ]
    above = largest(abs(more) / np.hypot(*errors) for more, *errors in above)
    name = "trained - least mean risk, in errors and 2 %"
    made = [Check("trained gate - predicted gate, largest", apart, 0.03, "<=")]
    made.append(Check(name, above, 4.0, "<="))
    for title, one in found.items():
        exact = {n: c.mean[-1] for n, c in one["curves"].items() if c.how == "exact"}
        pairs = [(one["simulated"][n], risk) for n, risk in exact.items()]
        z = largest(abs(one.mean - risk) / one.standard_error for one, risk in pairs)
        made.append(Check(f"{title}: simulated - exact, largest z", z, 4, "<="))
        bayes, others = one["curves"]["Bayes"], [one["curves"][n].mean for n in exact]
        below = [((bayes.mean - mean) / bayes.standard_error)[1:] for mean in others]
        z = largest(np.ravel(below))
        made.append(Check(f"{title}: Bayes - exact, largest z", z, 4.5, "<="))
    return made


def findings(config: Config, found: dict, rows: list[dict]) -> list[str]:
    said = []
    for title, one in found.items():
        last = {name: float(c.mean[-1]) for name, c in one["curves"].items()}
        bayes = last.pop("Bayes")
        order = sorted(last, key=last.__getitem__)
        excess = ", ".join(f"{name} {last[name] - bayes:.3f}" for name in order)
        start = f"{title}, {config.num_examples} examples: Bayes has {bayes:.3f}"
        said.append(f"{start}; above it are {excess}.")
    apart = largest(abs(t["gate"] - r["predicted"]) for r in rows for t in r["trained"])
    said.append(f"Trained gates differ from the predicted ones by at most {apart:.3f}.")
    return said


def tables(config: Config, found: dict, rows: list[dict]) -> list[Any]:
    """Risks with all examples, and predicted beside trained gates."""
    lines = []
    for name in LOOKS:
        line = {"learner": name}
        for title, one in found.items():
            rule, curve = one["rules"].get(name), one["curves"][name]
            line[title] = f"{curve.mean[-1]:.4f}"
            values = rule if rule is None else [*rule.to_dict().values()][:2]
            shown = "-" if values is None else ", ".join(f"{v:.3f}" for v in values)
            line[f"settings, {title}"] = shown
        lines.append(line)
    title = f"risk after {config.num_examples} examples, query noise included; "
    title += "settings: step size and gate, or penalty and forgetting"
    one = frame.table(lines, title=title)
    lines = []
    for row in rows:
        trained = [f"{t['gate']:.3f}" for t in row["trained"]]
        risks = [f"{t['risk']:.3f}" for t in row["trained"]]
        lines.append(row | {"gates": ", ".join(trained), "risks": ", ".join(risks)})
    columns = {"layer": "{kind}", "persistence": "{persistence:g}"}
    columns |= {"predicted gate": "{predicted:.3f}", "trained gates": "{gates}"}
    columns |= {"least risk": "{least:.3f}", "trained risks": "{risks}"}
    title = f"gates; risks are means over 0 to {config.num_examples} examples"
    return [one, frame.table(lines, columns, title=title)]


def draw_risks(config: Config, found: dict) -> Any:
    """Excess risk over the noise against examples, one panel for each source."""
    with frame.panels(1, 2, figsize=(11, 4.6)) as (figure, panels):
        for axes, (title, one) in zip(panels, found.items(), strict=True):
            shown = {
                name: Curve(np.asarray(c.mean), exact=True) if c.how == "exact" else c
                for name, c in ((name, one["curves"][name]) for name in LOOKS)
            }
            error_curves(shown, ax=axes, colours=LOOKS, ylabel="")
            axes.set_title(title)
        panels[0].set_ylabel("risk, noise included")
        title = f"d = {config.dim}, $\\sigma^2$ = {config.noise_var:g}; persistence "
        figure.suptitle(f"{title}{config.persistence:g} in the right panel")
    return figure


def draw_gates(line: dict, rows: list[dict]) -> Any:
    """Predicted gates as lines and trained ones as dots, one for each seed."""
    with frame.panels(figsize=(6.4, 4.4)) as (figure, axes):
        for name, own in line.items():
            colour = LOOKS[f"gated {name}"]
            at, gate = own["persistence"], own["gate"]
            axes.plot(at, gate, color=colour, label=f"{name}, predicted")
            dots = [
                (row["persistence"], t["gate"])
                for row in rows
                if row["kind"] == name
                for t in row["trained"]
            ]
            look = {"color": colour, "mec": "white", "label": f"{name}, trained"}
            axes.plot(*zip(*dots, strict=True), "o", **look)
        ends = [min(min(own["persistence"]) for own in line.values()), 1]
        axes.plot(ends, ends, ":", color="grey", label="gate = persistence")
        axes.set(xlabel="persistence of the task", ylabel="gate")
        axes.set_title("Gates of trained layers (one dot for each seed)")
        axes.legend()
    return figure


def numbers(found: dict, rows: list[dict], line: dict) -> dict[str, Any]:
    stored: dict[str, Any] = {"gates": rows, "predicted": line, "sources": {}}
    for title, one in found.items():
        own = {
            name: {"mean": np.asarray(c.mean), "error": np.asarray(c.standard_error)}
            for name, c in one["curves"].items()
        }
        own = {
            "curves": own,
            "rules": {n: r.to_dict() for n, r in one["rules"].items()},
        }
        stored["sources"][title] = own
    return stored


@frame.experiment(PRESETS)
def main(config, run):
    found = {}
    with run.phase("transformers"):
        fits = {n: train_transformers(config, s) for n, s in sources(config).items()}
    with run.phase("layers"):
        rows = gates(config, run)
    with run.phase("risks"), jax.enable_x64(True):
        for title, source in sources(config).items():
            found[title] = curves(config, source, fits[title])
        line = predicted_line(config)
        risks, drawn = draw_risks(config, found), draw_gates(line, rows)
        return Report(
            numbers(found, rows, line),
            checks=checks(config, found, rows),
            findings=findings(config, found, rows),
            tables=tables(config, found, rows),
            figures={"risks.png": risks, "gates.png": drawn},
            interval_level=0.95,
            axes={"sources.*.curves.*.mean": ["examples k, from 0"]},
        )


frame.program(__name__, main)
