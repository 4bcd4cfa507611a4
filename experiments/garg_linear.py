"""A transformer learns linear regression in context (Garg et al. 2022).

Trains GPT-2 on prompts (x_1, y_1, ..., x_k, y_k, x), and compares its squared error at
every k with methods on the same prompts and with exact lines. --task trains on another
family of functions: sparse linear functions, two-layer ReLU networks or decision trees.
Errors are divided by the variance of the labels. --eval-shifts adds Garg's settings.
"""

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared.fitted import NetworkRecipe, network_prefixes, tree_prefixes
from experiments.shared.training import GPT2_CPU, fit, mean_metrics, with_seeds
from icltheory import plotting as plot
from icltheory import regression as reg
from icltheory import training
from icltheory.models import GPT2, LayeredGPT2
from icltheory.plotting.style import plain_log_axis
from icltheory.statistics import Estimate, curve_interval
from icltheory.training import Curriculum, OptimizerConfig, Ramp

MODEL, LEAST_SQUARES, AVERAGING = "Transformer", "least squares", "averaging"
NEAREST, LASSO, NETWORK = "3-NN", "Lasso", "two-layer network"
TREES = TREE, SIGNS_TREE = "greedy tree", "greedy tree on signs"
OPTIMUM = "one-layer optimum"
STEPS, LOWER_BOUND = "best gradient steps", "lower bound for linear layers"
PAPER_ERRORS = {20: 0.02, 40: 0.0006}  # Garg et al. 2022, Section 3, d = 20
CLOSE = 0.05  # in claims a smaller difference of normalised errors counts as none
LEVEL = 0.95  # of all intervals
SNAPSHOTS = "snapshots"  # folder of a run with one of parameters for each step kept
bootstrap = jax.jit(functools.partial(curve_interval, level=LEVEL))


@dataclass(frozen=True)
class FamilySizes:
    """Sizes of the families; a run uses only those of its own family."""

    sparsity: int = 3  # non-zero weights of a sparse linear function
    hidden: int = 100  # hidden units of a ReLU network
    depth: int = 4  # depth of a decision tree

    def __post_init__(self):
        check_at_least(self, 1, "sparsity", "hidden", "depth")


@dataclass(frozen=True)
class Baselines:
    """Hyperparameters of the methods that are fitted to each prompt's examples."""

    lasso_penalty: float = 0.01  # penalty of the Lasso
    tree_depth: int = 2  # depth of the greedy trees
    signs_depth: int = 4  # depth of the greedy trees that see the signs of the inputs
    network: NetworkRecipe = NetworkRecipe()  # training of the two-layer network
    prompts: int = 256  # the first prompts, to which networks and trees are fitted

    def __post_init__(self):
        check_at_least(self, 0, "lasso_penalty")
        check_at_least(self, 1, "tree_depth", "signs_depth")
        check_at_least(self, 2, "prompts")


@dataclass(frozen=True)
class Config:
    """Sizes and recipe; with the seeds it decides every number."""

    dim: int  # input dimension d
    num_points: int  # points of a prompt; the last k is one less
    width: int  # width of the residual stream
    num_layers: int  # blocks
    num_heads: int  # attention heads
    steps: int  # training steps
    batch_size: int  # prompts per step
    optimizer: OptimizerConfig  # update rule and its schedule
    curriculum: Curriculum  # which coordinates and points count when
    mlp: bool = True  # whether the blocks have their MLP
    init_std: float = 0.02  # standard deviation of the initial weights
    # Garg's interleaved tokens, one token per pair, or one token for an input and the
    # label before it
    token_layout: Literal["interleaved", "matrix", "shifted"] = "interleaved"
    accumulation: int = 1  # parts of a batch, to save memory
    seeds: tuple[int, ...] = (0,)  # one run for each, side by side
    # what answers are compared with: labels, or the posterior means of which labels are
    # noisy copies (the same mean gradient with less noise)
    targets: Literal["labels", "posterior"] = "labels"
    # of the matrix products; parameters and sums stay float32
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    chunk_steps: int = 100  # steps per dispatch, and per line of metrics.jsonl
    checkpoint_every: int = 1000  # steps between checkpoints
    # parts of the run after which the error curve is measured
    snapshots: tuple[float, ...] = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
    eval_prompts: int = 1280  # fresh prompts of an evaluation
    ridge_penalty: float = 1.0  # penalty of the ridge predictor in the table
    # family of the functions to learn: what is trained on, what the model is compared
    # with and what errors are divided by; as an option it also sets the number of
    # points to 2d + 1 (linear functions) or 5d + 1
    task: Literal["linear", "sparse", "relu_network", "decision_tree"] = "linear"
    family: FamilySizes = FamilySizes()  # sizes of the families
    baselines: Baselines = Baselines()  # the methods that are compared with the model

    def __post_init__(self):
        counts = ("dim", "width", "num_layers", "num_heads", "steps", "batch_size")
        chunks = ("accumulation", "chunk_steps", "checkpoint_every")
        check_at_least(self, 1, *counts, *chunks)
        check_at_least(self, 2, "eval_prompts")
        check_at_least(self, 0, "ridge_penalty")
        heads, width, least = self.num_heads, self.width, 2 * self.dim + 1
        expect(width % heads == 0, "num_heads", f"a divisor of width {width}", heads)
        many, one_of = f"at least 2 dim + 1 = {least}", f"one of {', '.join(FAMILIES)}"
        expect(self.num_points >= least, "num_points", many, self.num_points)
        expect(self.task in FAMILIES, "task", one_of, self.task)
        expected = f"labels with the task {self.task}, whose posterior means are not"
        known = self.targets == "labels" or FAMILIES[self.task].gaussian
        expect(known, "targets", f"{expected} known", self.targets)
        for name, full in (("dims", self.dim), ("points", self.num_points)):
            end = getattr(self.curriculum, name).end
            expect(end == full, f"curriculum.{name}.end", f"the full {full}", end)
        seeds = self.seeds
        distinct = bool(seeds) and len(set(seeds)) == len(seeds)
        expect(distinct, "seeds", "at least one seed, all distinct", seeds)
        frame.check_each(self, "in (0, 1]", "snapshots")

    def of_task(self, task: str) -> "Config":
        """Returns this config for another family, with its length of prompts."""
        if task not in FAMILIES:
            return self  # the full parser reports the error later
        points = FAMILIES[task].points_per_dim * self.dim + 1
        ramp, stretch = self.curriculum.points, (points - 1) / (self.num_points - 1)
        start = round(stretch * (ramp.start - 1)) + 1
        increment = max(round(stretch * ramp.increment), 1)
        longer: Any = {"points": Ramp(start, points, increment, ramp.interval)}
        stairs: Any = replace(self.curriculum, **longer)
        return replace(self, task=task, num_points=points, curriculum=stairs)

    def needs_all_steps(self) -> str | None:
        return frame.depends_on_all_steps(self.optimizer.schedule)


@functools.lru_cache
def methods(config: Config) -> dict[str, Callable[[reg.PrefixPrompt], Any]]:
    """The methods beside the transformer: prompts to predictions (prompts, points)."""
    given, seed = config.baselines, config.seeds[0]
    ridge, lasso = config.ridge_penalty, given.lasso_penalty

    def compiled(predictor):
        predict = jax.jit(jax.vmap(predictor.predict_prefixes))
        return lambda prompt: predict(prompt.X, prompt.y, prompt.X_query)

    def first(prompt, seen=np.asarray):  # networks and trees answer these alone
        count = given.prompts
        return seen(np.asarray(prompt.X)[:count]), np.asarray(prompt.y)[:count]

    def network(prompt):
        key = jax.random.fold_in(training.stream_key(seed, "evaluation"), 1)
        return network_prefixes(*first(prompt), key, given.network)

    rules = {
        LEAST_SQUARES: compiled(reg.LeastSquares()),
        f"ridge ({ridge:g})": compiled(reg.Ridge(ridge)),
        f"{LASSO} ({lasso:g})": compiled(reg.Lasso(lasso)),
        AVERAGING: compiled(reg.Averaging()),
        NEAREST: compiled(reg.NearestNeighbors(3)),
        NETWORK: network,
        TREE: lambda p: tree_prefixes(*first(p), given.tree_depth),
        SIGNS_TREE: lambda p: tree_prefixes(*first(p, np.sign), given.signs_depth),
    }
    chosen = FAMILIES[config.task].methods
    return {name: rules[name] for name in rules if name.partition(" (")[0] in chosen}


@dataclass(frozen=True)
class Family:
    """One family of functions: its task, what it is compared with, what should hold."""

    title: str  # what is learned in context; fields such as {config.dim} are filled in
    task: Callable[[Config], Any]  # the distribution of prompts
    unit: str  # what errors are divided by, as in Garg's code: "d", "s" or "1"
    methods: tuple[str, ...]  # those beside the transformer
    points_per_dim: int = 5  # examples for each dimension in the longest prompt
    below: tuple[str, ...] = ()  # methods below which the last error must be
    # of Garg et al., Figure 5: method, numbers k, largest difference to its error
    claims: Callable[[Config], tuple] = lambda config: ()
    # Gaussian linear functions with the same E ww', which decides the exact risks of
    # predictions that are linear in w; None where y is not linear in x
    moments: Callable[[Config], reg.LinearPopulation] | None = None
    gaussian: bool = False  # whether posterior means are known, and shifts defined

    @property
    def label(self) -> str:
        """The label of an error with its normaliser, for axes and tables."""
        return "squared error" + f" / {self.unit}" * (self.unit != "1")

    def normalizer(self, config: Config) -> float:
        """What the errors of a config are divided by."""
        return {"d": config.dim, "s": config.family.sparsity, "1": 1.0}[self.unit]


def isotropic(config: Config) -> reg.LinearPopulation:
    return reg.LinearPopulation.isotropic(config.dim, dtype=jnp.float32)


def as_sparse(config: Config) -> reg.LinearPopulation:
    """Gaussian tasks with the second moments of sparse ones."""
    share, task = config.family.sparsity / config.dim, isotropic(config)
    return task.with_(task_cov=share * task.task_cov)


def halves(config: Config) -> tuple[int, int]:
    """Half of the last k, and that."""
    return (config.num_points - 1) // 2, config.num_points - 1


LINEAR = (LEAST_SQUARES, AVERAGING, NEAREST)
FAMILIES = {
    "linear": Family(
        "In-context linear regression",
        isotropic,
        "d",
        ("ridge", *LINEAR),
        points_per_dim=2,
        moments=isotropic,
        gaussian=True,
    ),
    "sparse": Family(
        "Sparse linear regression in context, s = {config.family.sparsity}",
        lambda config: reg.SparseLinearRegression(
            config.dim, config.family.sparsity, dtype=jnp.float32
        ),
        "s",
        (LASSO, *LINEAR),
        points_per_dim=2,
        claims=lambda config: (
            (LEAST_SQUARES, (config.dim // 2,), 0.0),
            (LASSO, (config.dim // 2, config.dim), CLOSE),
        ),
        moments=as_sparse,
    ),
    "relu_network": Family(
        "Two-layer ReLU networks in context",
        lambda config: reg.ReluNetwork(config.dim, config.family.hidden, jnp.float32),
        "d",
        (LEAST_SQUARES, NEAREST, NETWORK),
        below=(LEAST_SQUARES, NEAREST),
        claims=lambda config: ((NETWORK, halves(config), CLOSE),),
    ),
    "decision_tree": Family(
        "Decision trees in context",
        lambda config: reg.DecisionTree(config.dim, config.family.depth, jnp.float32),
        "1",
        (LEAST_SQUARES, NEAREST, NETWORK, TREE, SIGNS_TREE),
        below=(NEAREST, TREE),
        claims=lambda config: tuple((name, halves(config), 0.0) for name in TREES),
    ),
}

SAME = ("dim", "num_points", "width", "num_layers", "num_heads", "init_std", "steps")
CPU = Config(
    # 0.02 is Garg's value at width 256; narrow models train faster from larger weights.
    **{name: getattr(GPT2_CPU, name) for name in (*SAME, "batch_size", "optimizer")},
    curriculum=Curriculum.none(GPT2_CPU.dim, GPT2_CPU.num_points),
)
SIZES: dict[str, Any] = {"dim": 20, "num_points": 41, "num_layers": 12, "num_heads": 8}
CHUNKS: dict[str, Any] = {"chunk_steps": 1000, "checkpoint_every": 50_000}
PAPER = Config(
    **SIZES,
    **CHUNKS,
    width=256,
    steps=500_001,
    batch_size=64,
    optimizer=OptimizerConfig("adam", 1e-4),
    curriculum=Curriculum(Ramp(5, 20, 1, 2000), Ramp(11, 41, 2, 2000)),
    # The published run used TF32, PyTorch's default at that time.
    precision="tf32",
)
MUON = functools.partial(OptimizerConfig, "muon", schedule="cosine", clip_norm=1.0)
FEWER, SHALLOW = FamilySizes(sparsity=1), FamilySizes(depth=3)
GPU: dict[str, Any] = {"precision": "bfloat16", "steps": 6500, "batch_size": 256}
D20: dict[str, Any] = {"width": 128, "num_layers": 6, "num_heads": 4, "init_std": 0.05}
FEW: dict[str, Any] = {"precision": "float32", "steps": 9000, "batch_size": 32}
PRESETS = {
    "cpu": CPU,
    "gpu": replace(
        PAPER,
        **GPU,
        targets="posterior",
        optimizer=MUON(2e-3, warmup_steps=271),
        curriculum=Curriculum(Ramp(5, 20, 1, 54), Ramp(11, 41, 2, 54)),
        chunk_steps=250,
        checkpoint_every=2000,
    ),
    "paper": PAPER,
    # In so few steps, training needs a sparsity and depth below the published 3 and 4.
    "sparse": replace(CPU, steps=6000, family=FEWER).of_task("sparse"),
    "relu_network": replace(CPU, steps=2500).of_task("relu_network"),
    "decision_tree": replace(CPU, steps=3000, family=SHALLOW).of_task("decision_tree"),
    # The published dimension, for a short training on two cores. The shorter curriculum
    # and posterior targets were chosen by short trials of the same seed.
    "d20": replace(
        PAPER,
        **D20,
        **FEW,
        targets="posterior",
        optimizer=MUON(4e-3, adam_learning_rate=2e-3, warmup_steps=300),
        curriculum=Curriculum(Ramp(5, 20, 1, 150), Ramp(11, 41, 2, 150)),
        snapshots=(0.25, 0.5, 0.75, 1.0),
        chunk_steps=50,
    ),
}
# Measured times, the last three on busy cores; the preset paper has not been run yet.
TIMES = {
    "cpu": "1 to 1.5 min, 2 cores",
    "gpu": "2.4 min with compiling, H200",
    "d20": "30 to 70 min, 2 cores",
    "sparse": "4 to 5 min, 2 cores",
    "relu_network": "4 to 7 min, 2 cores",
    "decision_tree": "4 to 7 min, 2 cores",
}


@dataclass(frozen=True)
class Setup:
    """Model, task, optimiser and mesh of a config."""

    config: Config
    family: Family
    model: GPT2
    task: Any
    optimizer: Any
    mesh: Any


def set_up(config: Config, devices: int | None) -> Setup:
    # In bfloat16 models only the optimiser has float32 products; TF32 suffices for it.
    products = "highest" if config.precision == "float32" else "tensorfloat32"
    jax.config.update("jax_default_matmul_precision", products)
    sizes = ("dim", "width", "num_layers", "num_heads", "mlp", "init_std")
    model = GPT2(
        # Garg's position table has 101 points for any prompt; a small run needs fewer.
        num_positions=202 if config.dim == 20 else 2 * config.num_points,
        token_layout=config.token_layout,
        dtype=jnp.bfloat16 if config.precision == "bfloat16" else jnp.float32,
        **{name: getattr(config, name) for name in sizes},
    )
    family, mesh = FAMILIES[config.task], training.device_mesh(devices)
    optimizer = training.make_optimizer(config.optimizer, config.steps)
    mesh = mesh if mesh.size > 1 else None
    return Setup(config, family, model, family.task(config), optimizer, mesh)


def initial_state(setup: Setup) -> training.TrainState:
    """Returns the state at step 0, with an axis of seeds if there are several."""
    seeds, points = setup.config.seeds, setup.config.num_points
    given = setup.model, setup.task, setup.optimizer
    seeds = seeds if len(seeds) > 1 else seeds[0]
    return training.init_state(*given, seeds, num_points=points, mesh=setup.mesh)


def training_step(setup: Setup, **options: Any) -> training.Step:
    """Returns the training step of all seeds, with further options of ``make_step``."""
    config, given = setup.config, (setup.model, setup.task, setup.optimizer)
    same = ("batch_size", "num_points", "accumulation")
    options |= {name: getattr(config, name) for name in same} | {"mesh": setup.mesh}
    if config.targets == "posterior":
        options["targets"] = training.bayes_targets
    step = training.make_step(*given, config.curriculum, **options)
    return jax.vmap(step) if len(config.seeds) > 1 else step


def stacked(setup: Setup, state: training.TrainState) -> Any:
    """Returns parameters with an axis of seeds, in this process's memory."""
    params = training.averaged(state)
    params = params if setup.mesh is None else jax.device_get(params)
    return with_seeds(params, setup.config.seeds)


def train(setup: Setup, run: frame.Run) -> tuple[Any, list[dict], dict[str, float]]:
    """Trains, or resumes: parameters with an axis of seeds, metrics and timing."""
    config, prompt = setup.config, evaluation_prompt(setup)
    chunk, total = config.chunk_steps, config.steps
    chunks = (math.ceil(part * total / chunk) for part in config.snapshots)
    wanted = {min(count * chunk, total) for count in chunks}
    rate = training.learning_rate(config.optimizer, total)

    def record(done: int, chunk: training.Chunk) -> dict[str, Any]:
        stairs = config.curriculum.dims, config.curriculum.points
        dims, points = (int(ramp(done - 1)) for ramp in stairs)
        exact = least_squares_loss(setup, dims, points)
        line: dict[str, Any] = {"step": done, **mean_metrics(chunk.metrics)}
        line |= {} if exact is None else {"least_squares_loss": exact}
        line["learning_rate"] = float(jnp.asarray(rate(done - 1)))
        line |= {"active_dims": dims, "active_points": points}
        if done in wanted:
            params = stacked(setup, chunk.state)
            line["errors"] = model_errors(setup, params, prompt).mean(axis=1).tolist()
            store = training.Checkpoints(run.folder / SNAPSHOTS / f"{done}")
            # It is there already where an interrupted run repeats a part.
            if store.restore(params).state is None:
                store.save(done, params)
        return line

    fitted = fit(training_step(setup), initial_state(setup), run, config, record)
    speed = {"steps_per_second": fitted.timing.steps_per_second}
    return stacked(setup, fitted.state), fitted.records, asdict(fitted.timing) | speed


def least_squares_loss(setup: Setup, dims: int, points: int) -> float | None:
    """Exact training loss of least squares; ``None`` where y is not linear in x."""
    if setup.family.moments is None:
        return None
    if setup.config.targets == "posterior":
        return 0.0  # least squares is the posterior mean
    unknown = sum(max(dims - k, 0) for k in range(points)) / points
    return unknown * min(setup.family.normalizer(setup.config), dims) / dims


def load(run: str | os.PathLike) -> tuple[Setup, Any]:
    """Loads the models of a run's newest checkpoint, with an axis of several seeds."""
    setup = set_up(frame.read_config(Path(run), PRESETS["cpu"]), devices=1)
    store = training.Checkpoints(Path(run) / "checkpoints")
    found = store.restore(initial_state(setup))
    expect(found.state is not None, "run", "a run with a checkpoint", run)
    return setup, training.averaged(found.state)


def snapshots(setup: Setup, run: str | os.PathLike) -> dict[int, Any]:
    """Loads the models of a run along its training by step, with an axis of seeds."""
    folder, like = Path(run) / SNAPSHOTS, stacked(setup, initial_state(setup))
    expect(folder.is_dir(), "run", "a run with snapshots", run)
    kept = {int(path.name): path for path in folder.iterdir()}
    return {s: training.Checkpoints(kept[s]).restore(like).state for s in sorted(kept)}


def evaluation_prompt(setup: Setup) -> reg.PrefixPrompt:
    """Draws the evaluation prompts, the same for every model, baseline and step."""
    key = training.stream_key(setup.config.seeds[0], "evaluation")
    count = setup.config.eval_prompts
    return setup.task.sample(key, setup.config.num_points - 1, count).prefixes()


def model_errors(setup: Setup, params: Any, prompt: reg.PrefixPrompt) -> np.ndarray:
    """Normalised squared errors of every seed's model, (seeds, prompts, points)."""
    found = []
    for seed in range(len(setup.config.seeds)):
        own = jax.tree.map(lambda leaf, s=seed: leaf[s], params)
        found.append(training.prefix_errors(setup.model, own, prompt))
    return np.asarray(jnp.stack(found)) / setup.family.normalizer(setup.config)


def method_errors(setup: Setup, prompt: reg.PrefixPrompt) -> dict[str, np.ndarray]:
    """Normalised squared errors of the methods beside it, (prompts, points) each."""
    found = {}
    for name, rule in methods(setup.config).items():
        answers = np.asarray(rule(prompt))
        misses = answers - np.asarray(prompt.y_query)[: len(answers)]
        found[name] = np.square(misses) / setup.family.normalizer(setup.config)
    return found


def exact_risks(setup: Setup) -> dict[str, np.ndarray]:
    """Normalised exact risks for each k, empty where y is not linear in x."""
    config, family = setup.config, setup.family
    if family.moments is None:
        return {}
    task, layers, points = family.moments(config), config.num_layers, config.num_points
    rules = {
        OPTIMUM: lambda k: reg.optimum(reg.LinearStep, task, k).risk,
        LEAST_SQUARES: functools.partial(reg.risk, reg.LeastSquares(), task),
        AVERAGING: functools.partial(reg.risk, reg.Averaging(), task),
    }
    risks = {name: jax.vmap(rule)(jnp.arange(points)) for name, rule in rules.items()}
    scale = family.normalizer(config)
    found = {name: np.asarray(risk) / scale for name, risk in risks.items()}
    # Both limits of depth are of variance 1 per dimension, as normalised weights are.
    unit = reg.LinearPopulation.isotropic(config.dim)
    limits: dict[str, Callable] = {
        STEPS: lambda k: reg.optimum(reg.Steps(layers), unit, k)
    }
    if layers <= 3:  # beyond, the bound is 0 to many digits, and its moments take long
        limits[LOWER_BOUND] = lambda k: reg.depth.depth_floor(layers, unit, k)
    for name, limit in limits.items():
        own = (float(limit(k).risk) / config.dim for k in range(1, points))
        found[f"{name} ({layers})"] = np.array([1.0, *own])
    return found


def attention_by_layer(setup: Setup, params: Any, first: tuple) -> np.ndarray:
    """Attention (layers, T, T) of the first seed on prompts, means over heads too."""
    model, found = LayeredGPT2(setup.model), []
    own = jax.tree.map(lambda leaf: leaf[0], params)
    hidden = model.embed(own, first)
    for layer in range(model.num_layers):
        weights = model.attention_weights(layer, own, hidden)
        found.append(np.asarray(weights, float).mean(axis=(0, 1)))
        hidden = model.block(layer, own, hidden)
    return np.stack(found)


def interval(errors: np.ndarray) -> plot.Curve:
    """The mean over prompts and seeds with its interval, in quadrature for seeds."""
    pooled = errors.mean(axis=0) if errors.ndim > 2 else errors
    limits = bootstrap(jnp.asarray(pooled), key=jax.random.key(0))
    mean, low, high = pooled.mean(axis=0), *map(np.asarray, (limits.low, limits.high))
    if errors.ndim > 2 and len(errors) > 1:
        spread = Estimate.of(errors.mean(axis=1)).half_width(LEVEL)
        low = mean - np.hypot(mean - low, spread)
        high = mean + np.hypot(high - mean, spread)
    return plot.Curve(mean, low, high)


def on_same_prompts(errors: dict, name: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors after k examples, (seeds, prompts) of the transformer and of a method."""
    [other] = (e for key, e in errors.items() if key.partition(" (")[0] == name)
    return errors[MODEL][:, : len(other), k], other[:, k]


def checks(config: Config, errors: dict, exact: dict) -> list[Check]:
    """What a run must show: exact and published risks, and who is below whom."""
    d, last, linear = config.dim, config.num_points - 1, config.task == "linear"
    published, found = d == 20 and config.num_layers >= 12, []

    def model(name, k, reference, slack=0.0):
        error = errors[MODEL][..., k].mean()
        found.append(Check(f"{MODEL} {name} at k = {k}", error, reference, "<=", slack))

    def sampled(name, sample, reference, at=""):
        name += f", Monte Carlo against exact{at}"
        slack = 5 * Estimate.of(np.asarray(sample)).standard_error
        found.append(Check(name, sample.mean(), reference, "within", slack))

    if linear and (d != 20 or published):
        reference = errors[LEAST_SQUARES][:, 2 * d].mean()
        model(f"against {LEAST_SQUARES}", 2 * d, reference, 0.05)
    if exact:
        model("below the one-layer optimum", 2 * d, exact[OPTIMUM][2 * d])
        k = max(d // 2, 1)
        for name in (LEAST_SQUARES, AVERAGING):
            sampled(name, errors[name][:, k], exact[name][k], f" at k = {k}")
    for k, reference in PAPER_ERRORS.items() if linear and published else ():
        model("against the published error", k, reference)
    for name in FAMILIES[config.task].below:
        own, other = on_same_prompts(errors, name, last)
        name = f"{MODEL} below {name} at k = {last}, same prompts"
        found.append(Check(name, own.mean(), other.mean(), "<="))
    if not linear:
        sampled("error of predicting 0", errors["zero"].mean(axis=1), 1.0)
    return found


def claims(config: Config, errors: dict) -> list[Claim]:
    """Claims of Garg et al., Section 3 and Figure 5, beside what was measured."""
    small, found = config.dim == 20 and config.num_layers < 12, []
    for k, least in PAPER_ERRORS.items() if config.task == "linear" and small else ():
        own = float(errors[MODEL][..., k].mean())
        claim = f"The error is that of Garg et al. at k = {k}"
        found.append((claim, f"{own:.4f}", own <= least, f"at most {least:g}"))
    for name, ks, slack in FAMILIES[config.task].claims(config):
        parts, held = [], True
        for k in ks:
            own, other = on_same_prompts(errors, name, k)
            gap = Estimate.of(np.asarray(own.mean(axis=0) - other))
            low, high = (float(end) for end in gap.interval(LEVEL))
            held &= high <= slack
            parts.append(f"k = {k}: {float(gap.mean):+.3f} [{low:+.3f}, {high:+.3f}]")
        beside = f"at most {slack:g} above" if slack else "below"
        claim = f"The transformer's error is {beside} that of: {name}"
        measured = "difference on the same prompts, 95 % interval: " + "; ".join(parts)
        found.append((claim, measured, held, f"intervals below {slack:g}"))
    return [Claim(*one) for one in found]


def curve_title(name: str) -> str:
    """The title of a curve: "ridge (1)" becomes "ridge, penalty 1"."""
    kind, _, number = name.rstrip(")").partition(" (")
    parameters = {"ridge": "penalty", STEPS: "L =", LOWER_BOUND: "L ="}
    return f"{kind}, {parameters[kind]} {number}" if kind in parameters else name


def setting_title(name: str) -> str:
    """Describes one of Garg's evaluation settings in plain words."""
    kind, _, factor = name.partition("=")
    words = {
        "standard": "as in training",
        "random_quadrants": "signs of the examples shared",
        "orthogonal_train_test": "query orthogonal to examples",
        "overlapping_train_test": "query is one of the examples",
        "half_subspace": "inputs in half of the directions",
        "skewed": "skewed input covariance",
        "noisyLR": "noisy labels",
        **{"scale-x": "inputs", "scale-y": "weights"},
    }
    return words.get(kind, name) + (f" times {float(factor):.3g}" if factor else "")


def comparison(setup: Setup, curves: dict[str, plot.Curve], fewer: list[str]) -> Any:
    """The table of all predictors by k; some were fitted to fewer prompts."""
    config, d, last = setup.config, setup.config.dim, setup.config.num_points - 1

    def cell(curve, k):
        if curve.low is None:
            return f"{curve.mean[k]:.4f}"
        ends = (float(end[k]) for end in (curve.low, curve.high))
        low, high = (f"{end:.3f}" if end < 100 else f"{end:.0f}" for end in ends)
        return f"{curve.mean[k]:.4f}\n\\[{low}, {high}]"

    ks = sorted({1, max(d // 2, 1), d, 3 * d // 2, 2 * d, (2 * d + last) // 2, last})
    rows = [[k, *(cell(curve, k) for curve in curves.values())] for k in ks]
    few = f" ({config.baselines.prompts:,} of {', '.join(fewer)})" if fewer else ""
    exact = "; without interval: exact" if OPTIMUM in curves else ""
    title = f"{setup.family.label}, d = {d}, {config.eval_prompts:,} prompts{few}, "
    return frame.table(rows, ["k", *curves], f"{title}95 % intervals{exact}")


def draw(
    curves: dict[str, plot.Curve], title: str, height: float = 4.2, **look: Any
) -> Any:
    """Curves over the number of examples, or over training steps."""
    with frame.panels(figsize=(6.8, height)) as (figure, axes):
        plot.error_curves(curves, ax=axes, **look)
        axes.set_title(title, fontsize=10)
    return figure


def draw_errors(
    curves: dict[str, plot.Curve],
    title: str,
    label="squared error / d",
    dim=None,
    models=(MODEL,),
    **look: Any,
) -> Any:
    """Errors against k; the axis ends at the models' lowest, and d is marked."""
    # Least squares falls to the rounding of its arithmetic, far below.
    least = np.min([curves[name].mean for name in models], axis=0).astype(float)
    top = max(float(np.max(curve.mean)) for curve in curves.values())
    # Where y is not linear in x, without dim, least squares has no finite error there.
    ylim = (0.6 * least[least > 0].min(), 1.3 * (min(top, 3.0) if dim is None else top))
    look |= {"ylabel": f"{label}  (predicting 0 gives 1)", "ylim": ylim}
    figure = draw(curves, title, **look)
    (axes,), line = figure.axes, {"color": "grey", "linewidth": 0.8, "linestyle": ":"}
    axes.axhline(1.0, **line, zorder=0)
    if dim is not None:
        axes.axvline(dim, **line, zorder=0)
        where = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate("k = d", (dim, 1.0), (3, -10), **where, color="0.35", fontsize=8)
    axes.set_xlim(0, len(least) - 1)
    return figure


def draw_attention(weights: Any, tokens: Sequence[str] | None, title: str) -> Any:
    """Attention of each layer from each token to the tokens before it."""
    # The large weights of the first tokens, on few others, would make all others pale.
    images = plot.attention_maps(weights, tokens=tokens, columns=3, limit=0.5)
    images[0].axes.figure.suptitle(title, fontsize=10)
    return images[0].axes.figure


def draw_settings(
    shown: dict[str, dict[str, plot.Curve]],
    title: str,
    label="squared error / error of predicting 0",
    least=2e-3,
    columns=3,
) -> Any:
    """Small panels of curves over the number of examples, all with the same axes."""
    every = [curve for curves in shown.values() for curve in curves.values()]
    top = 1.5 * max(float(np.nanmax(curve.mean)) for curve in every)
    size = (8.0 / columns, 1.6 if columns < 4 else 2.1)
    with plot.panel_grid(shown, columns, title, size) as (figure, grid, _):
        for axes, curves in zip(grid, shown.values(), strict=True):
            colours, markers = plot.method_colours(curves), plot.method_markers(curves)
            for name, curve in curves.items():
                mark = {"marker": markers[name], "markersize": 3.5}
                mark["markevery"] = 1 + (len(curve.mean) > 12)
                look = {} if curve.exact else mark
                plot.draw_curve(axes, curve, name, colours[name], **look)
            axes.axhline(1.0, color="0.5", linewidth=0.8, linestyle=":", zorder=0)
            plain_log_axis(axes.yaxis, top / least)
            axes.set_ylim(least, top)
            axes.set_xlim(0, max(len(curve.mean) for curve in every) - 1)
            axes.set_xlabel("in-context examples k")
            axes.label_outer()
        figure.supylabel(label, fontsize=9)
    return figure


def figures(
    setup: Setup,
    curves: dict[str, plot.Curve],
    fewer: bool,
    exact: dict,
    records: Sequence,
) -> dict[str, Any]:
    """Errors of all methods; of a model trained here also its course and its loss."""
    config, family = setup.config, setup.family
    name = f"{family.title.format(config=config)}, {of_run(config)}"
    title = f"{name}\n{config.eval_prompts:,} prompts"
    title += f", {config.baselines.prompts:,} for networks and trees" * fewer
    title += "; bands: 95 % intervals" + "; dashed: exact" * bool(exact)
    shown = {curve_title(name): curve for name, curve in curves.items()}
    marks = family.label, config.dim if exact else None
    found = {"figure5a.png": draw_errors(shown, title, *marks)}
    if not records:
        return found
    beside = {family.methods[-1]: curves[family.methods[-1]]}
    if exact:
        known = (LEAST_SQUARES, STEPS, OPTIMUM)
        beside = {
            curve_title(other): plot.Curve.of(risk)
            for other, risk in exact.items()
            if other.startswith(known)
        }
    lines = [line for line in records if "errors" in line]
    places = np.unique(np.linspace(0, len(lines) - 1, 4).round().astype(int))
    shots = {
        f"step {lines[place]['step']:,}": {
            MODEL: plot.Curve(np.mean(lines[place]["errors"], axis=0)),
            **beside,
        }
        for place in places
    }
    least = 0.6 * min(float(np.min(panel[MODEL].mean)) for panel in shots.values())
    title = f"{name}: a transformer as it trains"
    look = family.label, least, len(shots)
    found["learning.png"] = draw_settings(shots, title, *look)
    steps = [line["step"] for line in records]
    losses = {MODEL: plot.Curve([np.mean(line["loss"]) for line in records], x=steps)}
    if exact:
        known = [line["least_squares_loss"] for line in records]
        losses["least squares (exact)"] = plot.Curve(known, exact=True, x=steps)
    title = f"Training loss, {of_run(config)} (mean of {config.chunk_steps} steps)"
    names = {"xlabel": "training step", "ylabel": "mean squared error of a prompt"}
    return found | {"loss.png": draw(losses, title, 3.6, **names)}


def of_run(config: Config) -> str:
    return f"d = {config.dim}, seed {', '.join(map(str, config.seeds))}"


def report(setup: Setup, params: Any, records: Sequence[dict]) -> Report:
    """Evaluates the final model; one that was not trained here has no records."""
    config, family, prompt = setup.config, setup.family, evaluation_prompt(setup)
    own, others = model_errors(setup, params, prompt), method_errors(setup, prompt)
    zero = np.square(np.asarray(prompt.y_query)) / family.normalizer(config)
    errors, exact = {MODEL: own, "zero": zero, **others}, exact_risks(setup)
    curves = {name: interval(e) for name, e in {MODEL: own, **others}.items()}
    curves |= {n: plot.Curve.of(risk) for n, risk in exact.items() if n not in others}
    counts = {name: len(sample) for name, sample in others.items()}
    fewer = [name for name, n in counts.items() if n < config.eval_prompts]
    means, parts = own.mean(axis=1).tolist(), ("mean", "low", "high")
    numbers = {
        "task": config.task,
        "normalizer": family.normalizer(config),
        "normalizer_name": family.unit,
        "prompts": {MODEL: config.eval_prompts, **counts},
        "curves": {
            name: {p: getattr(c, p) for p in parts if getattr(c, p) is not None}
            for name, c in curves.items()
        },
        "per_seed": dict(zip(map(str, config.seeds), means, strict=True)),
        "exact": exact,
        "precision": config.precision,
    }
    prompts, points = min(64, config.eval_prompts), min(8, config.num_points)
    first = prompt.X[:prompts, :points], prompt.y[:prompts, :points]
    weights = attention_by_layer(setup, params, first)
    # These are the interleaved tokens of Garg; the other layouts have one a pair.
    tokens = [f"{letter}{k + 1}" for k in range(points) for letter in "xy"]
    tokens = tokens if config.token_layout == "interleaved" else None
    title = f"Attention along depth, mean over heads and {prompts} prompts, "
    drawn = figures(setup, curves, bool(fewer), exact, records)
    drawn["attention.png"] = draw_attention(weights, tokens, title + of_run(config))
    names = ("curves.*.*", "per_seed.*", *(("exact.*",) if exact else ()))
    return Report(
        numbers,
        checks=checks(config, errors, exact),
        claims=claims(config, errors),
        tables=[comparison(setup, curves, fewer)],
        figures=drawn,
        interval_level=LEVEL,
        axes=dict.fromkeys(names, ["examples k, from 0"]),
    )


def report_shifts(setup: Setup, run: frame.Run, params: Any) -> dict[str, Any]:
    """Prints, draws and returns the errors on Garg's fifteen evaluation settings."""
    config, d = setup.config, setup.config.dim
    names, ks = (MODEL, LEAST_SQUARES, AVERAGING, NEAREST), (d // 2, d, 2 * d)
    shown, found, rows = {}, {}, []
    for shift in reg.shifts.garg_shifts(d, jnp.float32).values():
        key = training.stream_key(config.seeds[0], "evaluation")
        prompt = shift(key, config.num_points, config.eval_prompts)
        errors = {MODEL: model_errors(setup, params, prompt).mean(axis=0)}
        errors |= method_errors(setup, prompt)
        asked, scale = shift.num_informative or config.num_points, d / shift.normalizer
        curves = {name: interval(errors[name][:, :asked] * scale) for name in names}
        shown[setting_title(shift.name)] = curves
        found[shift.name] = {name: curve.mean for name, curve in curves.items()}
        means = [(curves[name].mean, k) for name in names[:2] for k in ks]
        cells = (f"{mean[k]:.4f}" if k < asked else "-" for mean, k in means)
        rows.append([shift.name, *cells])
    heads = ["setting", *(f"{name}\nk = {k}" for name in names[:2] for k in ks)]
    title = "distribution shifts: normalised squared error"
    run.results.print(frame.table(rows, heads, title))
    title = f"Garg's evaluation settings, d = {d} (bands: 95 % intervals)"
    run.save_figure("shifts.png", draw_settings(shown, title))
    return found


@dataclass(frozen=True)
class Switches(frame.Processes):
    """Switches of this experiment."""

    # evaluate the trained model on Garg's fifteen distribution shifts, which are made
    # for linear functions
    eval_shifts: bool = False


def check(config: Config, switches: Switches) -> None:
    """Raises where sizes, devices or switches do not fit the family."""
    set_up(config, switches.devices)
    fits = not switches.eval_shifts or FAMILIES[config.task].gaussian
    expect(fits, "eval_shifts", "the task linear", config.task)


@frame.experiment(PRESETS, Switches(), check)
def main(config, run, switches):
    setup = set_up(config, switches.devices)
    with run.phase("training"):
        params, records, timing = train(setup, run)
    with run.phase("evaluation"):
        found = report(setup, params, records)
    if switches.eval_shifts:
        with run.phase("distribution shifts"):
            run.write_json("shifts.json", report_shifts(setup, run, params))
    return replace(found, numbers={**found.numbers, "timing": timing})


frame.program(__name__, main)
