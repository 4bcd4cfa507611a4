"""Which algorithm a model runs: built by hand, trained, by layer and by training step.

A stack of three gradient steps; trained linear, softmax and gated attention;
transformers after every layer and along their training, and on pools of few and many
tasks. Each is compared with the best member of every family of icltheory.microscope; a
share is the mean squared distance of answers over their variance. The preset language
compares a language model with simple predictors of labels, and relabels its
demonstrations.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame, real_model, recurrent_learners, softmax_attention
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.real_model.measure import Subject as LanguageSubject
from experiments.shared.training import (
    GPT2_CPU,
    Recipe,
    TrainedModels,
    fit,
    linear_recipe,
    train,
)
from experiments.task_diversity import CPU as TASKS
from experiments.task_diversity import Pool
from icltheory import constructions, training
from icltheory import microscope as ms
from icltheory import regression as reg
from icltheory.batching import in_turns
from icltheory.models import LayeredGPT2
from icltheory.plotting import COLOURS, heat_map, method_colours
from icltheory.plotting.figures import error_curves
from icltheory.training import OptimizerConfig, TrainedModel

GARG = dataclasses.replace(
    GPT2_CPU, noise_var=0.25, steps=1500, snapshots=(0, 200, 500, 1000, 1500)
)
# The same noise and examples for each dimension. One token per pair in place of Garg's
# interleaved ones, with which a model of this size takes a GPU.
_MUON = OptimizerConfig("muon", 5e-3, 3e-3, "cosine", 200, clip_norm=1.0)
_LARGE: dict[str, Any] = {"dim": 20, "num_points": 41, "num_layers": 3, "width": 64}
_LARGE |= {"token_layout": "matrix", "noise_var": 1.0, "steps": 3000, "batch_size": 32}
_LARGE |= {"snapshots": (0, 500, 1000, 2000, 3000)}
LARGE = Recipe("gpt2", **_LARGE, optimizer=_MUON)
# Curves that the figures show.
SHOWN = ("gradient descent", "GD++", "Newton", "ridge", "Bayes", "averaging", "zero")
LEFT = "best mixture"
VIEWS = "its own read-out", "a linear probe", "along training"
POSTERIOR, RIDGE, GATED = "pool posterior", "ridge", "gated linear attention"
# Families that take long to compile and that no claim is about.
ASIDE = ("Lasso", "kernel ridge")
LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Language:
    """The language model, its tasks and how often it is asked."""

    checkpoint: str = ""  # folder, file or name; "" for SmolLM2-135M-Instruct
    tasks: tuple[str, ...] = ("sst2", "agnews")  # names of tasks
    shots: int = 8  # demonstrations, as many of each class
    questions: int = 64  # test examples of a task
    draws: int = 2  # draws of the demonstrations

    def __post_init__(self):
        check_at_least(self, 1, "shots", "draws")
        check_at_least(self, 2, "questions")


@dataclasses.dataclass(frozen=True)
class Config:
    """The models and how they are compared."""

    models: Literal["regression", "language"] = "regression"  # which are compared
    gpt2: Recipe = GARG  # Garg's transformer, with the steps of its snapshots
    large: Recipe = LARGE  # a transformer in more dimensions
    tasks: Recipe = dataclasses.replace(TASKS, seeds=(0,))  # transformers of the pools
    pools: tuple[int, ...] = (1, 4, 16, 64, 256)  # sizes; another has no pool
    shots: tuple[int, ...] = (1, 2, 4, 7)  # examples at which these are compared
    layers: tuple[int, ...] = (1, 3)  # depths of the trained linear attention
    linear_steps: int = 1000  # training steps of these
    softmax_steps: int = 2000  # training steps of the softmax heads
    gated_steps: int = 800  # training steps of the layers with a gate
    persistence: float = 0.95  # correlation of a task with the next, for these layers
    step_size: float = 0.35  # step size of the stack that is built by hand
    num_prompts: int = 2000  # prompts of a comparison; half tune, half judge
    seed: int = 0  # seed of the prompts
    language: Language = Language()  # used with language alone

    def __post_init__(self):
        check_at_least(self, 8, "num_prompts")
        check_at_least(self, 1, "linear_steps", "softmax_steps", "gated_steps")
        for name in ("gpt2", "large", "tasks"):
            recipe = getattr(self, name)
            kept = recipe.snapshots
            fits = recipe.model == "gpt2" and recipe.noise_var > 0
            got = f"{recipe.model} and {recipe.noise_var}"
            expect(fits, name, "a gpt2 with noise_var > 0", got)
            one = len(recipe.seeds) == 1
            expect(one, f"{name}.seeds", "one seed", recipe.seeds)
            fits = bool(kept) != (name == "tasks")
            wanted = "none" if name == "tasks" else "at least one step"
            expect(fits, f"{name}.snapshots", wanted, kept)
        least = min(self.layers, default=0)
        expect(least > 0, "layers", "numbers of layers >= 1", self.layers)
        least, most = min(self.pools, default=0), self.tasks.num_points - 1
        expect(least > 0, "pools", "sizes >= 1", self.pools)
        fits = 0 < min(self.shots, default=0) <= max(self.shots, default=0) <= most
        expect(fits, "shots", f"numbers from 1 to {most}", self.shots)


PRESETS = {"cpu": Config(), "language": Config("language")}
TIMES = {"cpu": "7 to 12 min, 2 cores", "language": "6 min, 2 cores"}


@dataclasses.dataclass(frozen=True)
class Switches(frame.Flags):
    """Switches of this experiment."""

    # folder with one of the task's name for each, in place of the hub
    task_folder: Path | None = None


class Subject(NamedTuple):
    """A model, the prompts it is asked, and families beside the usual ones."""

    model: Any
    source: Any
    num_examples: int
    more: tuple[ms.Family, ...] = ()


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


def options(config: Any) -> dict[str, Any]:
    """Options of all comparisons."""
    key = training.stream_key(config.seed, "evaluation")
    return {"key": key, "num_prompts": config.num_prompts}


def asked(X: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """A batch of one prompt whose last point is the query, its label left out."""
    return jnp.concatenate([X, x[None]])[None], jnp.pad(y, (0, 1))[None]


def linear_models(config: Config, run: Any) -> tuple[dict[str, Subject], list]:
    """Trained stacks of linear attention, and the metrics."""
    found, records = {}, []
    for depth in config.layers:
        recipe = linear_recipe(depth, config.gpt2.dim, config.linear_steps)
        trained = train(recipe, run, name=f"linear_{depth}", earlier=records)
        records += trained.records
        model = TrainedModel(trained.module, trained.of_seed(0))
        one = Subject(model, recipe.task(), recipe.num_points - 1)
        found[f"linear attention, L = {depth}"] = one
    return found, records


def softmax_models(config: Config, run: Any) -> dict[str, Subject]:
    """Layers of 1, 2 and 4 softmax heads, each the better of two seeds."""
    d, N = config.gpt2.dim, 4 * config.gpt2.dim
    sizes: Any = {"lengths": (N,), "others": (N,), "steps": config.softmax_steps}
    own = softmax_attention.Config(d, seeds=(0, 1), **sizes)
    trained = softmax_attention.train(own, run)
    risks, found, given = softmax_attention.evaluate(own, trained), {}, (jnp.eye(d),)
    scores = ms.Parameter("scale", 0.05, 2, 7), ms.Parameter("value", 0.3, 10, 6)
    step = (ms.Parameter("step size", 0.1, 2, 9),)
    makers = {
        "softmax head": (lambda eye, c, v: reg.SoftmaxHead(c * eye, v), scores),
        "centred step": (lambda eye, size: reg.DebiasedStep(size * eye), step),
    }
    more = tuple(
        ms.Rule(name, make, given, parameters=parameters)
        for name, (make, parameters) in makers.items()
    )
    population = reg.LinearPopulation.isotropic(d, own.noise_var)
    for heads, weights in trained.items():
        best = int(risks[heads][0, :, 0, 0].argmin())
        model = reg.SoftmaxHeads(weights["B"][0, best], weights["values"][0, best])
        name = f"softmax attention, {heads} head{'s' * (heads > 1)}"
        found[name] = Subject(model, population, N, more)
    return found


def gated_models(config: Config) -> tuple[dict[str, Subject], dict[str, float]]:
    """Trained layers with a gate on tasks that drift, and the gates they have."""
    d, a, found, gates = config.gpt2.dim, config.persistence, {}, {}
    own = recurrent_learners.Config(d, 4 * d, layer_steps=config.gated_steps)
    source = recurrent_learners.drift(own, a)
    (delta,) = (row for row in ms.FAMILIES if row.name == "delta rule")
    more = (
        ms.Rule(GATED, reg.GatedLinearAttention, parameters=delta.parameters),
        ms.Rule("Bayes", reg.Bayes, (source,)),
    )
    for kind in recurrent_learners.KINDS:
        fitted = recurrent_learners.fit_layers(own, kind, a)[0].model

        def answer(params, X, y, x, module=fitted.module):
            return module.apply({"params": params}, *asked(X, y, x))[0, -1]

        model = ms.WithParams(answer, fitted.params)
        found[f"gated {kind}"] = Subject(model, source, 4 * d, more)
        gates[f"gated {kind}"] = float(jax.nn.sigmoid(fitted.params["gate"]))
    return found, gates


def pool_models(config: Config, run: Any, earlier: list) -> dict[int, Subject]:
    """Transformers by the size of their pools; 0 stands for a new task a prompt."""
    recipe, sizes = config.tasks, (*config.pools, 0)
    task, (seed,) = recipe.task(), recipe.seeds

    def one(entry):
        state, size = entry
        return recipe.step_on(Pool.of_seed(task, seed, size))(state)

    def step(states):
        return in_turns(one, (states, jnp.asarray(sizes, jnp.int32)), 1)

    start = dataclasses.replace(recipe, seeds=recipe.seeds * len(sizes)).start()
    look: Any = {"name": "pools", "label": f"training on {len(sizes)} pools"}
    trained = fit(step, start, run, recipe, earlier=earlier, **look).state.params
    found, members = {}, Pool.of_seed(task, seed, 0).members
    for place, size in enumerate(sizes):
        params = jax.tree.map(lambda leaf, i=place: leaf[i], trained)
        source: Any = task
        if size:
            source = reg.TaskPool(task, pool=members(jnp.arange(size)))
        model = TrainedModel(recipe.module(), params)
        found[size] = Subject(model, source, recipe.num_points - 1)
    return found


# --- what is measured


def along(config: Any, trained: TrainedModels, name: str) -> dict[str, ms.Along]:
    """A transformer after every layer, by its read-out and a probe, and in training."""
    recipe, module, params = trained.recipe, trained.module, trained.of_seed(0)
    population, N = recipe.task(), recipe.num_points - 1
    layered = LayeredGPT2(module, last_only=recipe.token_layout == "matrix")

    def last(hidden):
        return hidden.tokens[0, hidden.outputs][-1]

    given: Any = {"num_examples": N, **options(config)}
    given["candidates"] = families(population)
    own = ms.along_layers(
        layered, params, population, asked, lambda out: out[0, -1], **given
    )
    key = training.stream_key(config.seed, "data")
    fresh = population.sample(key, N, 2 * config.num_prompts)
    probes = ms.probe(layered, params, fresh, asked, last)
    read = ms.along_models(probes, population, axis="layer", **given)
    steps = {s: TrainedModel(module, trained.of_seed(0, s)) for s in recipe.snapshots}
    over = ms.along_models(steps, population, **given)
    views = zip(VIEWS, (own, read, over), strict=True)
    return {f"{name}: {view}": axis for view, axis in views}


def risks(config: Any, one: Subject) -> dict[str, list[float]]:
    """Risks of a model, of Bayes and of the best gradient step, and the Bayes gap."""
    given = one.source, one.num_examples
    key, more = training.stream_key(config.seed, "data"), jax.random.key(config.seed)
    bayes = reg.Bayes(one.source)
    common: Any = {"num_examples": one.num_examples, **options(config)}
    found = {
        "risk": reg.estimate_risk(one.model, *given, key=key, num_prompts=4096),
        "bayes": reg.estimate_risk(bayes, *given, key=more, num_prompts=20_000),
        "bayes_gap": ms.bayes_gap(one.model, one.source, **common),
        "one_step": [reg.optimum(reg.LinearStep, *given).risk, 0],
    }
    return {name: [*map(float, values)] for name, values in found.items()}


def transition(config: Config, models: dict[int, Subject]) -> ms.Along:
    """Distances to pool posterior and ridge on new tasks; they agree without a pool."""
    task, noise, found = config.tasks.task(), config.tasks.noise_var, []
    ridge = reg.Ridge(noise)
    for size, one in models.items():
        posterior = reg.DiscreteMMSE(one.source.pool, noise) if size else ridge
        rules = {POSTERIOR: posterior, RIDGE: ridge}
        given: Any = {"num_examples": config.shots, **options(config)}
        found.append(ms.identify(one.model, task, rules, **given))
    return ms.Along("pool size", tuple(models), tuple(found))


def measure(config: Config, run: Any) -> dict[str, Any]:
    """Trains the models and compares each with every family."""
    subjects = softmax_models(config, run)
    linear, records = linear_models(config, run)
    gated, gates = gated_models(config)
    subjects, axes, known = {**linear, **subjects, **gated}, {}, {}
    for recipe in (config.gpt2, config.large):
        name = f"transformer, d = {recipe.dim}"
        trained = train(recipe, run, name=f"d{recipe.dim}", earlier=records)
        records += trained.records
        model = TrainedModel(trained.module, trained.of_seed(0))
        subjects[name] = Subject(model, recipe.task(), recipe.num_points - 1)
        axes |= along(config, trained, name)
        known[name] = risks(config, subjects[name])
    pools = pool_models(config, run, records)
    subjects |= {pool_name(size): one for size, one in pools.items()}
    named = {"three steps by hand": hand_built(config)}
    for name, one in run.track(subjects.items(), "comparison", unit="models"):
        rows = [*families(one.source), *one.more]
        given: Any = {"num_examples": one.num_examples, **options(config)}
        named[name] = ms.identify(one.model, one.source, rows, **given)
    return {
        "models": named,
        "along": axes,
        "risks": known,
        "gates": gates,
        "pools": transition(config, pools),
    }


def pool_name(size: int) -> str:
    """What the transformer of a pool is called."""
    tasks = f"{size} task{'s' * (size > 1)}" if size else "new tasks"
    return f"transformer, {tasks}"


# --- what is reported


def percent(estimate: Any) -> str:
    """A share with its interval, in percent."""
    low, high = estimate.interval(LEVEL)
    return f"{100 * estimate.mean:.2g} % ({100 * max(low, 0):.2g} to {100 * high:.2g})"


def row_of(name: Any, analysis: ms.Analysis) -> dict[str, Any]:
    """A line of a table: what is closest, and how much it leaves."""
    best = analysis.best
    low, high = best.share.interval(LEVEL)
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
    return {
        "models": [row_of(*pair) for pair in singles.items()],
        "shares": shares,
        "along": {
            name: [row_of(*pair) for pair in axis.analyses()]
            for name, axis in found["along"].items()
        },
        "risks": found["risks"],
    }


def closest(
    claim: str, one: Any, *wanted: str, also: str = "", holds: bool = True
) -> Claim:
    """The claim that one of the families wanted is among the closest."""
    said = f"closest {one.best}, {percent(one.best.share)}"
    if one.best.name not in wanted:
        said += f"; {wanted[0]} {percent(one[wanted[0]].share)}"
    expected = f"{' or '.join(wanted)} among the closest{also}"
    return Claim(claim, said, bool({*wanted} & {*one.closest}) and holds, expected)


def claims(config: Config, found: dict[str, Any]) -> list[Claim]:
    """Statements of the literature beside these models, shares with intervals."""
    singles = {name: one.last for name, one in found["models"].items()}
    made: list[Claim] = []

    def nearest(who: str, name: str, *wanted: str, **more: Any):
        made.append(closest(f"{who} ({name})", singles[name], *wanted, **more))

    for depth in config.layers:
        name = f"linear attention, L = {depth}"
        wanted = "gradient descent" if depth == 1 else "GD++"
        small = singles[name][wanted].share.interval(LEVEL).high < 0.05
        also = ", with less than 5 % of the variance"
        who = f"von Oswald et al. 2023: linear layers run {wanted}"
        nearest(who, name, wanted, also=also, holds=bool(small))
    for name in (name for name in singles if name.startswith("softmax")):
        wanted = "softmax head" if name.endswith("1 head") else "centred step"
        nearest(f"theory of softmax heads: it is a {wanted}", name, wanted)
    for name, gate in found["gates"].items():
        wanted = "delta rule" if "delta" in name else name
        own = singles[name][wanted].parameters["gate"]
        also = f", with the gate of the layer, {gate:.3f}, within 0.02"
        who = "Yang et al. 2024, 2025: a trained layer runs its rule"
        nearest(who, name, wanted, also=also, holds=abs(own - gate) < 0.02)
    for recipe in (config.gpt2, config.large):
        name = f"transformer, d = {recipe.dim}"
        ratio = singles[name][RIDGE].parameters["penalty"] / recipe.noise_var
        also = f"; ridge's penalty over the noise variance, {ratio:.2g}, in 0.5 to 2"
        who = "Akyurek et al. 2023: with noisy labels it is the Bayes ridge"
        nearest(who, name, RIDGE, "Bayes", also=also, holds=0.5 < ratio < 2)
    axes = found["along"].items()
    made += [newton(name, axis) for name, axis in axes if axis.axis == "layer"]
    who = "Raventos et al. 2023: its answers are those of the"
    nearest(f"{who} pool", pool_name(min(config.pools)), POSTERIOR)
    nearest(f"{who} ridge", pool_name(0), RIDGE, "Bayes")
    return [*made, change_of_algorithm(found["pools"])]


def newton(name: str, axis: ms.Along) -> Claim:
    """Whether Newton is closer than gradient descent after every block."""
    pairs = [(one["Newton"], one["gradient descent"]) for _, one in axis.analyses()]
    ends = [[c.share.interval(LEVEL) for c in pair] for pair in pairs[1:]]
    closer = sum(n.high < g.low for n, g in ends)
    farther = sum(n.low > g.high for n, g in ends)
    steps = [int(n.parameters["steps"]) for n, _ in pairs]
    return Claim(
        f"Fu et al. 2024: layers run Newton rather than GD ({name})",
        f"closer in {closer} of {len(ends)}, farther in {farther}; steps {steps}",
        closer == len(ends) and sorted(steps) == steps,
        "Newton closer by intervals apart in all layers, with steps that grow",
    )


def change_of_algorithm(pools: ms.Along) -> Claim:
    """At which sizes of the pool a transformer is closer to ridge than to its pool."""
    near: dict[str, list[int]] = {POSTERIOR: [], RIDGE: []}
    for size, one in pools.analyses()[:-1]:
        first, second = one.candidates
        if second.farther.interval(LEVEL).low > 0:
            near[first.name].append(size)
    below, above = near.values()
    return Claim(
        "Raventos et al. 2023: with more tasks it passes from its pool to ridge",
        f"closer to the {POSTERIOR} at {below}, to {RIDGE} at {above}",
        bool(below and above) and max(below) < min(above),
        "smaller pools closer to the posterior, larger ones to ridge",
    )


def checks_by_hand(config: Config, found: dict[str, Any]) -> list[Check]:
    """What is known of the hand-built stack."""
    built = found["models"]["three steps by hand"].last
    step = built.best.parameters.get("step size", np.nan)
    exact = built.best.distance.mean
    named = float(built.best.name == "gradient descent")
    return [
        Check("three steps by hand: named gradient descent", named, 1, "within"),
        Check("three steps by hand: distance", exact, 1e-10, "<="),
        Check("three steps by hand: step size", step, config.step_size, "within", 1e-6),
    ]


def checks_of_gaps(found: dict[str, Any]) -> list[Check]:
    """That Bayes gaps add up to the risks."""
    made = []
    for name, own in found["risks"].items():
        means, errors = np.array([own[k] for k in ("bayes_gap", "bayes", "risk")]).T
        z = abs(means[0] + means[1] - means[2]) / np.linalg.norm(errors)
        law = f"{name}: |z| of Bayes gap + Bayes risk = risk"
        made.append(Check(law, z, 4.0, "<="))
    return made


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
        head = {found["along"][name].axis: "{model}"}
        made.append(frame.table(rows, head | columns, name))
    return made


def draw_along(found: dict[str, Any], columns: int, title: str) -> Any:
    """Shares by layer, by training step and by examples."""
    axes, rows = found["along"], len(found["along"]) // columns
    size = 5 * columns, 4.6 * rows
    with frame.panels(rows, columns, title, figsize=size) as (figure, grid):
        for ax, (name, axis) in zip(np.ravel(grid), axes.items(), strict=True):
            curves = {n: s for n, s in axis.shares().items() if n in SHOWN}
            look: Any = {"xlabel": axis.axis, "colours": method_colours(SHOWN)}
            look["ylabel"] = "distance / variance of answers"
            places = range(len(axis.places))
            error_curves(curves, x=places, ax=ax, ylim=(1e-3, 3.0), **look)
            ax.set_xticks(places, axis.places)
            ax.set_title(name)
    return figure


def draw_map(found: dict[str, Any]) -> Any:
    """Shares of all models and families, as powers of ten."""
    singles = {name: one.last for name, one in found["models"].items()}
    names = list(dict.fromkeys(c.name for o in singles.values() for c in o.candidates))
    table = np.full((len(singles), len(names)), np.nan)
    for row, one in enumerate(singles.values()):
        for c in one.candidates:
            table[row, names.index(c.name)] = np.log10(max(float(c.share.mean), 1e-6))
    size = (13, 1.2 + 0.4 * len(singles))
    with frame.panels(figsize=size) as (figure, axes):
        write, blank = "{:z.1f}".format, {"xlabel": "", "ylabel": ""}
        shown = {"rows": [*singles], "columns": names, "write": write, "limit": 3.0}
        image = heat_map(np.clip(table, -6, 3), ax=axes, **blank, **shown)
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
        figure.colorbar(image, label="log10 of distance / variance")
        axes.set_title("Distance of each model to the best member of each family")
    return figure


def draw_pools(config: Config, pools: ms.Along) -> Any:
    """Distances to posterior and ridge by size of the pool, and by examples too."""
    sizes = [f"{size}" if size else "no pool" for size in pools.places]
    shares = [
        [[at[name].share.mean for at in one.analyses] for one in pools.found[:-1]]
        for name in (POSTERIOR, RIDGE)
    ]
    title = f"Transformers on pools of tasks, asked new tasks (d = {config.tasks.dim})"
    with frame.panels(1, 2, title, figsize=(11, 4.2)) as (figure, (left, right)):
        look: Any = {"xlabel": "tasks of the pool", "x": range(len(sizes))}
        look["ylabel"] = "distance / variance of answers"
        error_curves(pools.shares(), ax=left, **look)
        left.set_xticks(range(len(sizes)), sizes)
        left.set_title(f"after {max(config.shots)} examples")
        cells: Any = {"rows": sizes[:-1], "columns": config.shots, "limit": 1.0}
        cells |= {"xlabel": "in-context examples", "ylabel": look["xlabel"]}
        cells["write"] = lambda ratio: f"{10**ratio:.2g}"
        heat_map(np.subtract(*np.log10(shares)), ax=right, **cells)
        right.set_title("distance to pool posterior / distance to ridge", fontsize=9)
    return figure


def report(config: Config, found: dict[str, Any]) -> Report:
    """Numbers, checks, claims, tables and figures of the run."""
    drawn = draw_along(found, 3, "Transformers by layer and along training")
    figures = {"map.png": draw_map(found), "along.png": drawn}
    return Report(
        numbers(found) | {"pools": found["pools"].rows(), "gates": found["gates"]},
        checks=[*checks_by_hand(config, found), *checks_of_gaps(found)],
        tables=tables(found),
        claims=claims(config, found),
        claims_title="what the literature says of trained models",
        findings=[one.last.summary for one in found["models"].values()],
        figures=figures | {"pools.png": draw_pools(config, found["pools"])},
        interval_level=LEVEL,
    )


# --- the language model


def measure_language(config: Config, run: Any, folder: Path | None) -> dict[str, Any]:
    """Distances to predictors and responses to relabelling, with their intervals."""
    own = config.language
    sizes: Any = {"most_shots": own.shots, "test_examples": own.questions}
    sizes |= {"draws": own.draws, "update_shots": (own.shots,)}
    settings = real_model.Config(own.checkpoint, own.tasks, **sizes)
    subject, found = LanguageSubject(settings, run, folder), {}
    cases = [(name, draw) for name in own.tasks for draw in range(own.draws)]
    for name, draw in run.track(cases, "relabelling", unit="draws"):
        task = subject.task(name, "paper+paper", "label_token", draw)
        one = ms.identify_labels(subject.model, task)
        p, r = one.probabilities, one.responses
        parts = {f"label {i + 1}": values for i, values in enumerate(r.T)}
        parts |= {"a label": r.mean(axis=1)}
        parts["last less others"] = r[:, -1] - r[:, :-1].mean(axis=1)
        parts["accuracy"] = p.argmax(axis=1) == [e.label for e in task.test]
        for rule, predict in ms.label_rules().items():
            parts[rule] = np.sum((predict(task, "test") - p) ** 2, axis=1)
        found.setdefault(name, []).append(parts)

    def ends(values):
        # Every draw asks the same questions, over which errors are.
        one = ms.SkewedEstimate.of(np.mean(values, axis=0))
        return [*map(float, (one.mean, *one.interval(LEVEL)))]

    return {
        name: {part: ends([one[part] for one in draws]) for part in draws[0]}
        for name, draws in found.items()
    }


def draw_language(config: Config, found: dict[str, Any]) -> Any:
    """Responses to each label, and distances to the predictors."""
    shown = [f"label {i + 1}" for i in range(config.language.shots)]
    with frame.panels(1, 2, figsize=(10.5, 3.8)) as (figure, grid):
        for axes, names in zip(grid, (shown, [*ms.label_rules()]), strict=True):
            for k, (task, own) in enumerate(found.items()):
                mean, low, high = np.array([own[name] for name in names]).T
                x, reach = np.arange(len(names)) + 0.15 * k, [mean - low, high - mean]
                look: Any = {"fmt": "os^D"[k % 4], "capsize": 3, "label": task}
                axes.errorbar(x, mean, reach, color=COLOURS[k + 1], **look)
            axes.set_xticks(range(len(names)), names, rotation=20)
            axes.axhline(0, color="grey", lw=0.8)
        grid[0].set_title("change of a label's probability when it is shown")
        grid[1].set_title("squared distance to simple predictors")
        grid[0].legend()
    return figure


def report_language(config: Config, found: dict[str, Any]) -> Report:
    """Numbers, claims, a table and the figure of the language model."""
    made, text, checks = [], "{:.3f} ({:.3f} to {:.3f})".format, []
    for name, own in found.items():
        # A mean over the demonstrations hides responses of opposite signs.
        each = [own[part] for part in own if part[-1].isdigit()]
        most, least = max(each, key=lambda ends: abs(ends[0])), own["last less others"]
        little = all(max(-low, high) < 0.05 for _, low, high in each)
        who = f"Min et al. 2022: no label matters much ({name})"
        wanted = "every response within 0.05; shown is the largest"
        made.append(Claim(who, text(*most), little, wanted))
        who = f"Zhao et al. 2021: recency ({name})"
        made.append(Claim(who, text(*least), least[1] > 0, "above 0"))
        # As many demonstrations of each class: the label prior is uniform.
        apart = abs(own["uniform"][0] - own["label prior"][0])
        law = f"{name}: distance to the uniform predictor less that to the label prior"
        checks.append(Check(law, apart, 0, "<=", 1e-6))
    lines = [
        {"": part} | {task: text(*own[part]) for task, own in found.items()}
        for part in next(iter(found.values()))
    ]
    title = "changes of probability by labels, squared distances to predictors "
    return Report(
        {"language": found},
        checks=checks,
        claims=made,
        claims_title="what the literature says of language models",
        tables=[frame.table(lines, title=f"{title} ({LEVEL:.0%} intervals)")],
        figures={"language.png": draw_language(config, found)},
        interval_level=LEVEL,
    )


@frame.experiment(PRESETS, Switches())
def main(config, run, flags):
    """Trains models and names the algorithm that each runs."""
    if config.models == "language":
        with run.phase("relabelling"):
            found = measure_language(config, run, flags.task_folder)
        return report_language(config, found)
    with run.phase("training and comparison"):
        found = measure(config, run)
    return report(config, found)


frame.program(__name__, main)
