"""Which algorithm a model runs: built by hand, trained, by layer and by training step.

A stack of three gradient steps, trained layers of linear attention, Garg's transformer
after every layer and along its training, and two transformers of which one saw few
tasks. Each is compared with the best member of every family of icltheory.microscope; a
share is the mean squared distance of answers over their variance.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared.training import GPT2_CPU, Recipe, fit, linear_recipe, train
from icltheory import constructions, training
from icltheory import microscope as ms
from icltheory import regression as reg
from icltheory.models import LayeredGPT2
from icltheory.plotting import heat_map, method_colours
from icltheory.plotting.figures import error_curves
from icltheory.training import Curriculum, OptimizerConfig, TrainedModel

_MUON = OptimizerConfig("muon", 1e-2, 1e-2, "cosine", 200, clip_norm=1.0)
# The training of the preset cpu of task_diversity.
_SMALL: dict[str, Any] = {"dim": 3, "num_points": 8, "num_layers": 2, "width": 32}
_SMALL |= {"token_layout": "matrix", "init_std": 0.2, "steps": 1000, "batch_size": 64}
TASKS = Recipe("gpt2", **_SMALL, noise_var=0.25, optimizer=_MUON)
GARG = dataclasses.replace(
    GPT2_CPU, noise_var=0.25, steps=1500, snapshots=(0, 200, 500, 1000, 1500)
)
# Curves that the figures show.
SHOWN = ("gradient descent", "GD++", "Newton", "ridge", "Bayes", "averaging", "zero")
LEFT = "best mixture"
# Families that take long to compile and that no claim is about.
ASIDE = ("Lasso", "kernel ridge")


@dataclasses.dataclass(frozen=True)
class Config:
    """The models and how they are compared."""

    gpt2: Recipe = GARG  # Garg's transformer, with the steps of its snapshots
    tasks: Recipe = TASKS  # the transformers that see few and many tasks
    pool_size: int = 4  # tasks of the first of them; the other has a new one a prompt
    layers: tuple[int, ...] = (1, 3)  # depths of the trained linear attention
    linear_steps: int = 1000  # training steps of these
    step_size: float = 0.35  # step size of the stack that is built by hand
    num_prompts: int = 2000  # prompts of a comparison; half tune, half judge
    seed: int = 0  # seed of the prompts

    def __post_init__(self):
        check_at_least(self, 8, "num_prompts")
        check_at_least(self, 1, "pool_size", "linear_steps")
        for name in ("gpt2", "tasks"):
            recipe = getattr(self, name)
            fits = recipe.model == "gpt2" and recipe.noise_var > 0
            got = f"{recipe.model} and {recipe.noise_var}"
            expect(fits, name, "a gpt2 with noise_var > 0", got)
            one = len(recipe.seeds) == 1
            expect(one, f"{name}.seeds", "one seed", recipe.seeds)
        kept = self.gpt2.snapshots
        expect(bool(kept), "gpt2.snapshots", "at least one step", kept)
        least = min(self.layers, default=0)
        expect(least > 0, "layers", "numbers of layers >= 1", self.layers)


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "4 min, 2 cores"}


# --- the models


def hand_built(config: Config) -> ms.Identification:
    """The stack of three gradient steps, in float64."""
    with jax.enable_x64(True):
        population = reg.LinearPopulation.isotropic(5, 0.25)
        stack = constructions.gradient_descent(jnp.full(3, config.step_size), 5)

        def model(X, y, x):
            tokens = constructions.join_tokens(X, y[:, None], x)
            out = stack.apply(*tokens, scale=1 / len(y))
            return constructions.read_prediction(out.h_query[-1], 5)[0]

        names = ("gradient descent", "GD++", "Newton", "ridge")
        rows = [row for row in ms.FAMILIES if row.name in names]
        return ms.identify(model, population, rows, num_examples=10, **options(config))


def families(source: Any) -> list[ms.Family]:
    """The families that models on a source are compared with."""
    return [row for row in ms.families_for(source) if row.name not in ASIDE]


def options(config: Config) -> dict[str, Any]:
    """Options of all comparisons."""
    key = training.stream_key(config.seed, "evaluation")
    return {"key": key, "num_prompts": config.num_prompts}


def linear_models(config: Config, run: Any) -> tuple[dict[str, Any], list]:
    """Trained stacks of linear attention, with their sources, and the metrics."""
    found, records = {}, []
    for depth in config.layers:
        recipe = linear_recipe(depth, config.gpt2.dim, config.linear_steps)
        trained = train(recipe, run, name=f"linear_{depth}", earlier=records)
        records += trained.records
        model = TrainedModel(trained.module, trained.of_seed(0))
        found[f"linear attention, L = {depth}"] = model, recipe
    return found, records


def task_models(config: Config, run: Any, records: list) -> dict[str, Any]:
    """Transformers that see few tasks, or a new one in each prompt."""
    recipe, population = config.tasks, config.tasks.task()
    key = training.stream_key(config.seed, "data")
    pool = reg.TaskPool(population, config.pool_size, key)
    found, shape = {}, (recipe.dim, recipe.num_points)
    sizes: Any = {"batch_size": recipe.batch_size, "num_points": recipe.num_points}
    for name, source in (
        (f"{config.pool_size} tasks", pool),
        ("new tasks", population),
    ):
        step = training.make_step(
            recipe.module(),
            source,
            recipe.transformation(),
            Curriculum.none(*shape),
            **sizes,
        )
        look = {"name": name.replace(" ", "_"), "label": f"training on {name}"}
        fitted = fit(step, recipe.start(), run, recipe, earlier=records, **look)
        records = [*records, *fitted.records]
        found[name] = TrainedModel(recipe.module(), fitted.state.params), pool
    return found


# --- what is measured


def layers_of(config: Config, model: TrainedModel) -> dict[str, ms.Along]:
    """Garg's transformer after every layer: its own read-out, and a probe."""
    population = config.gpt2.task()
    module: Any = config.gpt2.module()
    layered = LayeredGPT2(module)
    N = config.gpt2.num_points - 1

    def inputs(X, y, x):
        points = jnp.concatenate([X, x[None]])
        return points[None], jnp.pad(y, (0, 1))[None]

    def last(hidden):
        return hidden.tokens[0, hidden.outputs][-1]

    given: Any = {"num_examples": N, **options(config)}
    given["candidates"] = families(population)
    own = ms.along_layers(
        layered, model.params, population, inputs, lambda out: out[0, -1], **given
    )
    key = training.stream_key(config.seed, "data")
    fresh = population.sample(key, N, 2 * config.num_prompts)
    probes = ms.probe(layered, model.params, fresh, inputs, last)
    read = ms.along_models(probes, population, axis="layer", **given)
    return {"its own read-out": own, "a linear probe": read}


def measure(config: Config, run: Any) -> dict[str, Any]:
    """Trains the models and compares each with every family."""
    models, records = linear_models(config, run)
    trained = train(config.gpt2, run, earlier=records)
    records += trained.records
    pairs = task_models(config, run, records)
    N, population, common = (
        config.gpt2.num_points - 1,
        config.gpt2.task(),
        options(config),
    )
    steps = {
        step: TrainedModel(trained.module, trained.of_seed(0, step))
        for step in config.gpt2.snapshots
    }
    final = TrainedModel(trained.module, trained.of_seed(0))
    singles = {"three steps by hand": hand_built(config)}
    for name, (model, recipe) in models.items():
        source, length = recipe.task(), recipe.num_points - 1
        given = source, families(source)
        singles[name] = ms.identify(model, *given, num_examples=length, **common)
    usual = population, families(population)
    singles["transformer"] = ms.identify(final, *usual, num_examples=N, **common)
    for name, (model, pool) in pairs.items():
        length = config.tasks.num_points - 1
        source = pool if name != "new tasks" else pool.task
        given = source, families(pool)
        found = ms.identify(model, *given, num_examples=length, **common)
        singles[f"transformer, {name}"] = found
    gap = ms.bayes_gap(final, population, num_examples=N, **common)
    fresh = training.stream_key(config.seed, "data")
    raw = reg.estimate_risk(final, population, N, key=fresh, num_prompts=4096)
    common |= {"candidates": families(population), "num_examples": N}
    training_axis = ms.along_models(steps, population, **common)
    return {
        "models": singles,
        "layers": layers_of(config, final),
        "training": training_axis,
        "gap": gap,
        "raw": raw,
    }


# --- what is reported


def row_of(name: Any, analysis: ms.Analysis) -> dict[str, Any]:
    """A line of a table: what is closest, and how much it leaves."""
    best = analysis.best
    low, high = best.share.interval(analysis.level)
    return {
        "model": name,
        "closest": str(best),
        "as close": ", ".join(analysis.closest[1:]),
        "share": float(best.share.mean),
        "low": float(low),
        "high": float(high),
        "unexplained": float(analysis.unexplained.mean),
        "in labels": float(analysis.linearity_in_labels.mean),
        "in query": float(analysis.linearity_in_query.mean),
    }


def numbers(found: dict[str, Any]) -> dict[str, Any]:
    """The tables' lines, and every share by model and candidate."""
    singles = {name: one.last for name, one in found["models"].items()}
    shares = {
        name: {c.name: float(np.nan_to_num(c.share.mean)) for c in one.candidates}
        for name, one in singles.items()
    }
    along = {**found["layers"], "training": found["training"]}
    return {
        "models": [row_of(*pair) for pair in singles.items()],
        "shares": shares,
        "along": {
            name: [row_of(place, one) for place, one in axis.analyses()]
            for name, axis in along.items()
        },
        "bayes_gap": tuple(map(float, found["gap"])),
        "risk": tuple(map(float, found["raw"])),
    }


def claims(config: Config, found: dict[str, Any]) -> list[Claim]:
    """Statements of the literature about trained models."""
    singles = {name: one.last for name, one in found["models"].items()}
    rows: list[Any] = []
    for depth in config.layers:
        one = singles[f"linear attention, L = {depth}"]
        said, wanted = "is gradient descent", "gradient descent"
        if depth > 1:
            said, wanted = "are GD++", "GD++"
        rows.append(
            (
                f"von Oswald et al. 2023: {depth} trained linear layers {said}",
                f"closest {one.best}, {100 * one.best.share.mean:.2g} %",
                wanted in one.closest and one[wanted].share.mean < 0.05,
                f"{wanted} among the closest, with less than 5 % of the variance",
            )
        )
    last = singles["transformer"]
    penalty = last["ridge"].parameters["penalty"]
    rows.append(
        (
            "Akyurek et al. 2023: a transformer on noisy labels is the Bayes ridge",
            f"closest {last.best}; ridge's best penalty {penalty:.3g}",
            {"ridge", "Bayes"} & {*last.closest} and 0.5 < penalty / 0.25 < 2,
            "ridge or Bayes among the closest, penalty within a factor 2 of sigma^2",
        )
    )
    for name, axis in found["layers"].items():
        pairs = [(one["Newton"], one["gradient descent"]) for _, one in axis.analyses()]
        held = [n.share.mean < g.share.mean for n, g in pairs[1:]]
        steps = [int(n.parameters["steps"]) for n, _ in pairs]
        rows.append(
            (
                f"Fu et al. 2024: layers are Newton rather than GD ({name})",
                f"closer than GD in {sum(held)} of {len(held)}; steps {steps}",
                all(held) and sorted(steps) == steps,
                "Newton closer in all layers, with steps that grow",
            )
        )
    few, new = (f"transformer, {n}" for n in (f"{config.pool_size} tasks", "new tasks"))
    for name, wanted in ((few, "pool posterior"), (new, "ridge")):
        one = singles[name]
        rows.append(
            (
                f"Raventos et al. 2023: {name.partition(', ')[2]} give {wanted}",
                f"closest {one.best}, {100 * one.best.share.mean:.2g} %",
                wanted in one.closest
                or (wanted == "ridge" and "Bayes" in one.best.name),
                f"{wanted} among the closest",
            )
        )
    return [Claim(*row) for row in rows]


def checks(config: Config, found: dict[str, Any]) -> list[Check]:
    """What is known of the hand-built stack, and of the Bayes gap."""
    built = found["models"]["three steps by hand"].last
    step = built.best.parameters.get("step size", np.nan)
    risk, gap = found["raw"], found["gap"]
    N, population = config.gpt2.num_points - 1, config.gpt2.task()
    options: Any = {"key": jax.random.key(config.seed), "num_prompts": 20_000}
    best = reg.estimate_risk(reg.Bayes(population), population, N, **options)
    error = np.hypot(gap.standard_error, risk.standard_error)
    z = (gap.mean + float(best.mean) - float(risk.mean)) / error
    exact = built.best.distance.mean
    named = float(built.best.name == "gradient descent")
    return [
        Check("three steps by hand: named gradient descent", named, 1, "within"),
        Check("three steps by hand: distance", exact, 1e-10, "<="),
        Check("three steps by hand: step size", step, config.step_size, "within", 1e-6),
        Check("transformer: |z| of Bayes gap + Bayes risk = risk", abs(z), 4.0, "<="),
    ]


def tables(found: dict[str, Any]) -> list[Any]:
    """What is closest, for every model and along layers and training."""
    shown = numbers(found)
    columns = {"closest": "{closest}", "share": "{share:.2g}"}
    columns |= {"95 % interval": "{low:.2g} to {high:.2g}"}
    columns |= {LEFT: "{unexplained:.2g}"}
    linear = {"linear in labels": "{in labels:.3f}", "in query": "{in query:.3f}"}
    title = "the closest algorithm; distances over the variance of the answers"
    made = [
        frame.table(shown["models"], {"model": "{model}"} | columns | linear, title)
    ]
    for name, rows in shown["along"].items():
        head = "step" if name == "training" else "layer"
        title = f"the transformer by {head}" + (f", {name}" if head == "layer" else "")
        made.append(frame.table(rows, {head: "{model}"} | columns, title))
    return made


def draw_along(found: dict[str, Any]) -> Any:
    """Shares by layer and by training step."""
    axes = {**found["layers"], "training": found["training"]}
    with frame.panels(1, len(axes), "Garg's transformer", figsize=(15, 4.6)) as (
        figure,
        grid,
    ):
        for ax, (name, axis) in zip(np.ravel(grid), axes.items(), strict=True):
            curves = {n: s for n, s in axis.shares().items() if n in SHOWN}
            look: Any = {"xlabel": axis.axis, "colours": method_colours(SHOWN)}
            look["ylabel"] = "distance / variance of answers"
            places = range(len(axis.places))
            error_curves(curves, x=places, ax=ax, ylim=(1e-3, 3.0), **look)
            ax.set_xticks(places, axis.places)
            ax.set_title(name if axis.axis == "layer" else "along training")
    return figure


def draw_map(found: dict[str, Any]) -> Any:
    """Shares of all models and families, as powers of ten."""
    singles = {name: one.last for name, one in found["models"].items()}
    names = list(dict.fromkeys(c.name for o in singles.values() for c in o.candidates))
    table = np.full((len(singles), len(names)), np.nan)
    for row, one in enumerate(singles.values()):
        for c in one.candidates:
            table[row, names.index(c.name)] = np.log10(max(float(c.share.mean), 1e-6))
    with frame.panels(figsize=(12, 4.4)) as (figure, axes):
        write, blank = "{:z.1f}".format, {"xlabel": "", "ylabel": ""}
        shown = {"rows": [*singles], "columns": names, "write": write, "limit": 3.0}
        image = heat_map(np.clip(table, -6, 3), ax=axes, **blank, **shown)
        axes.tick_params(axis="x", rotation=40)
        figure.colorbar(image, label="log10 of distance / variance")
        axes.set_title("Distance of each model to the best member of each family")
    return figure


def report(config: Config, found: dict[str, Any]) -> Report:
    """Numbers, checks, claims, tables and figures of the run."""
    return Report(
        numbers(found),
        checks=checks(config, found),
        tables=tables(found),
        claims=claims(config, found),
        claims_title="what the literature says of trained models",
        findings=[one.last.summary for one in found["models"].values()],
        figures={"map.png": draw_map(found), "along.png": draw_along(found)},
        interval_level=0.95,
    )


@frame.experiment(PRESETS)
def main(config, run):
    """Trains models and names the algorithm that each runs."""
    with run.phase("training and comparison"):
        found = measure(config, run)
    return report(config, found)


frame.program(__name__, main)
