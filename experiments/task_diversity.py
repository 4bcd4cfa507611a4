"""From memorised tasks to ridge regression as the pool grows (Raventos et al. 2023).

Trains GPT-2 on prompts y = <w, x> + noise whose w is one of M fixed tasks, for a
growing M, and without a pool. Compares its answers with dMMSE (the posterior mean for
the pool) and with ridge at penalty sigma^2 (for Gaussian tasks), on the pool's tasks
and on new ones: squared errors and distances / d, means over k = 0, ..., P - 1. Ridge's
line is an average over inputs, dMMSE's one over pools that no model has seen.
"""

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Report, check_at_least, expect, largest
from experiments.shared.training import GPT2_CPU, Recipe, fit, mean_metrics
from icltheory import regression as reg
from icltheory import training
from icltheory.batching import in_turns
from icltheory.plotting import METHODS, heat_map, name_ends
from icltheory.plotting.style import plain_log_axis
from icltheory.regression.sources import Prompt
from icltheory.statistics import Estimate
from icltheory.training import OptimizerConfig

MODEL, DMMSE, RIDGE = "transformer", "dMMSE", "ridge"
LINEAR = "one-layer optimum"  # of linear attention
POOL, NEW = "pool", "new"
TITLES = {POOL: "tasks of the pool", NEW: "new Gaussian tasks"}
# The Bayes predictor of each source; the excess risk equals the distance to it.
BAYES = {POOL: DMMSE, NEW: RIDGE}
TO_DMMSE, TO_RIDGE = f"{MODEL} - {DMMSE}", f"{MODEL} - {RIDGE}"
CLOSENESS = "log10 of distance to dMMSE / distance to ridge"
SIGMAS = 5.0  # allowed z-score of a difference whose expectation is 0
NO_POOL = 2**31 - 1  # tasks where there is no pool: more than a training run draws
TOGETHER = 512  # prompts that are measured at once


@dataclass(frozen=True)
class Config:
    """The trained models, their pools of tasks, and how much is measured."""

    recipe: Recipe  # the transformer and its training; one pool a seed and size
    # numbers of tasks M, ascending; then 0 for no pool: every prompt has a new task
    pool_sizes: tuple[int, ...]
    # runs that share one batched program; the others wait their turn within the step
    runs_at_once: int = 1
    # fresh prompts on which a run is measured, from its pool and with new tasks each
    eval_prompts: int = 4096
    theory_pools: int = 64  # pools over which the risk of discrete MMSE is averaged
    theory_prompts: int = 256  # prompts a pool for that
    ridge_draws: int = 20_000  # draws of the inputs for the risk of ridge

    def __post_init__(self):
        recipe, sizes = self.recipe, self.finite_sizes
        mean, noise, kept = recipe.task_mean, recipe.noise_var, recipe.snapshots
        kind, apart = (recipe.model, recipe.loss_points), "two examples tell the tasks"
        ascending = len(sizes) > 1 and sizes[0] > 0 and sorted({*sizes}) == [*sizes]
        for fits, name, expected, got in (
            (kind == ("gpt2", "all"), "recipe", "model gpt2, loss_points all", kind),
            (not mean, "recipe.task_mean", "0, where ridge is the Bayes rule", mean),
            (not kept, "recipe.snapshots", "none", kept),
            (noise > 0, "recipe.noise_var", f"a value > 0 (at 0 {apart} apart)", noise),
            (
                ascending and self.pool_sizes[-1:] == (0,),
                "pool_sizes",
                "two or more ascending sizes from 1, then 0 for no pool",
                self.pool_sizes,
            ),
        ):
            expect(fits, name, expected, got)
        frame.check_seeds("recipe.seeds", recipe.seeds)
        counts = ("eval_prompts", "theory_pools", "theory_prompts", "ridge_draws")
        check_at_least(self, 2, *counts)
        check_at_least(self, 1, "runs_at_once")

    @property
    def finite_sizes(self) -> tuple[int, ...]:
        """Sizes of the finite pools, without the entry for no pool."""
        return self.pool_sizes[:-1]

    def runs(self) -> list[tuple[int, int]]:
        """Pool size and seed of every run, ordered by size."""
        return [(size, seed) for size in self.pool_sizes for seed in self.recipe.seeds]


# Raventos et al., Section 3 and Appendix: GPT-2 with 8 layers, width 128 and 2 heads.
_SIZES: dict[str, Any] = {"dim": 8, "num_points": 16, "num_layers": 8, "width": 128}
_SIZES |= {"num_heads": 2, "init_std": 0.02, "noise_var": 0.25, "seeds": (0, 1)}
_LONG: dict[str, Any] = {"steps": 500_000, "batch_size": 256, "chunk_steps": 1000}
_LONG |= {"optimizer": OptimizerConfig("adam", 1e-3, schedule="triangle")}
PAPER = Recipe("gpt2", **_SIZES, **_LONG, checkpoint_every=10_000)
# With pairs as tokens two layers suffice; with interleaved inputs and labels, the first
# layer would only join them.
_SMALL: dict[str, Any] = {"dim": 3, "num_points": 8, "num_layers": 2, "width": 32}
_SMALL |= {"token_layout": "matrix", "init_std": 0.2, "noise_var": 0.25, "steps": 1000}
_MUON = OptimizerConfig("muon", 1e-2, 1e-2, "cosine", 200, clip_norm=1.0)
CPU = replace(GPT2_CPU, **_SMALL, optimizer=_MUON, seeds=(0, 1, 2))
_FEW: dict[str, Any] = {"steps": 8000, "chunk_steps": 250, "checkpoint_every": 4000}
_MUON = OptimizerConfig("muon", 3e-3, 1e-3, "cosine", 80, clip_norm=1.0)
GPU = replace(PAPER, num_layers=6, init_std=0.05, optimizer=_MUON, **_FEW)
PRESETS = {
    "cpu": Config(CPU, (1, 4, 16, 64, 256, 0)),
    "gpu": Config(GPU, (1, 64, 4096, 0), runs_at_once=20, eval_prompts=16_384),
    "paper": Config(PAPER, (*(2**k for k in range(21)), 0), 11, 16_384),
}
# Measured times; the preset paper has not been run yet.
TIMES = {"cpu": "4 to 7 min, 2 cores", "gpu": "4 min, one H200"}


@dataclass(frozen=True)
class Pool:
    """Prompts with w ~ Uniform{w_1, ..., w_M}; fresh inputs and noise in every prompt.

    Task i depends on the pool's key and i alone. The size may be traced, and is 0 for a
    new task in every prompt.
    """

    task: reg.LinearPopulation
    key: Any
    size: Any

    @classmethod
    def of_seed(cls, task: reg.LinearPopulation, seed: Any, size: Any) -> "Pool":
        return cls(task, evaluation_key(seed, "pool"), size)

    @property
    def dim(self) -> int:
        return self.task.dim

    def members(self, index: jax.Array) -> jax.Array:
        def draw(i):
            return self.task.sample_parameters(jax.random.fold_in(self.key, i), 1)[0]

        return jax.vmap(draw)(index)

    def sample(
        self, key: Any, num_examples: int, num_prompts: int, *, active_dims: Any = None
    ) -> Prompt:
        """Draws prompts; ``active_dims`` is ignored."""
        draw, inputs, noise = jax.random.split(key, 3)
        limit = jnp.where(self.size == 0, NO_POOL, self.size)
        w = self.members(jax.random.randint(draw, (num_prompts,), 0, limit))
        X = self.task.sample_inputs(inputs, num_examples + 1, num_prompts)
        y, w = self.task.label(noise, w, X)
        return Prompt(X[:, :-1], y[:, :-1], X[:, -1], y[:, -1], w)


def evaluation_key(seed: Any, use: str) -> Any:
    """Returns a seed's key for random numbers other than training prompts."""
    place = ("pool", "prompts", "new prompts", "theory").index(use)
    return jax.random.fold_in(training.stream_key(seed, "evaluation"), place)


# --- what is measured


def answers(pool: Pool, size: int, prompt: Any) -> dict[str, Any]:
    """Answers of the two Bayes predictors; without a pool both are ridge."""
    noise_var, inputs = pool.task.noise_var, (prompt.X, prompt.y)
    ridge = discrete = reg.Ridge(noise_var)
    if size:
        discrete = reg.DiscreteMMSE(pool.members(jnp.arange(size)), noise_var)
    known = {DMMSE: discrete, RIDGE: ridge}
    return {n: jax.vmap(rule.predict_prefixes)(*inputs) for n, rule in known.items()}


def scores(task: Any, answers: dict[str, Any], prompt: Any) -> dict[str, Any]:
    """Squared errors against <w, x> and distances ``a - b``, over d and prefixes."""
    truth = task.evaluate(prompt.w, prompt.X_query)

    def gap(a, b):
        return jnp.mean(jnp.square(a - b), axis=-1) / task.dim

    found = {name: gap(answer, truth) for name, answer in answers.items()}
    pairs = itertools.combinations(answers, 2)
    return found | {f"{a} - {b}": gap(answers[a], answers[b]) for a, b in pairs}


def scorers(config: Config) -> dict[int, Any]:
    """Compiled scores of (parameters, the pool's key, prompts) by pool size."""
    module, task = config.recipe.module(), config.recipe.task()

    def of_size(size):
        @jax.jit
        def scored(params, key, prompt):
            pool = Pool(task, key, size)

            def one(prompt):
                batch = jax.tree.map(lambda leaf: leaf[None], prompt)
                own = module.apply({"params": params}, batch.X, batch.y)
                every = {MODEL: own, **answers(pool, size, batch)}
                return jax.tree.map(lambda s: s[0], scores(task, every, batch))

            return jax.lax.map(one, prompt, batch_size=TOGETHER)

        return scored

    return {size: of_size(size) for size in config.pool_sizes}


def measure(
    config: Config, params: Any, scored: dict[int, Any], names: Any = (POOL, NEW)
) -> list[dict[str, dict[str, Any]]]:
    """Scores each of ``config.runs()`` by source of prompts, one number a prompt."""
    recipe, task, found = config.recipe, config.recipe.task(), []
    for index, (size, seed) in enumerate(config.runs()):
        own = jax.tree.map(lambda leaf, i=index: leaf[i], params)
        pool = Pool.of_seed(task, seed, size)
        sources = {POOL: (pool, "prompts"), NEW: (task, "new prompts")}
        row = {}
        for name in names:
            source, use = sources[name]
            args = evaluation_key(seed, use), recipe.num_points - 1
            prompt = source.sample(*args, config.eval_prompts).prefixes()
            row[name] = jax.device_get(scored[size](own, pool.key, prompt))
        found.append(row)
    return found


def train(config: Config, run: Any, scored: dict[int, Any]) -> Any:
    """Trains one transformer per pool size and seed in one program, or resumes.

    After 1, 2, 4, ... chunks the record says which predictor each is closer to.
    """
    # Products are in full float32, in training and in the evaluation after it.
    jax.config.update("jax_default_matmul_precision", "highest")

    def record(done, chunk):
        found = {"step": done, **mean_metrics(chunk.metrics)}
        chunks, rest = divmod(done, config.recipe.chunk_steps)
        if not rest and chunks.bit_count() == 1:
            rows = measure(config, chunk.state.params, scored, (NEW,))
            new = by_size(config, rows)[NEW]
            found[CLOSENESS] = np.log10(new[TO_DMMSE] / new[TO_RIDGE]).ravel().tolist()
        return found

    given = training_step(config), initial_state(config), run, config.recipe, record
    label = f"training {len(config.runs())} transformers"
    return fit(*given, config=config, label=label)


def initial_state(config: Config) -> training.TrainState:
    seeds = tuple(seed for _, seed in config.runs())
    return replace(config.recipe, seeds=seeds).start()


def training_step(config: Config) -> training.Step:
    recipe, task = config.recipe, config.recipe.task()
    sizes = jnp.asarray([size for size, _ in config.runs()], jnp.int32)

    def one(run):
        state, size = run
        return recipe.step_on(Pool.of_seed(task, state.seed, size))(state)

    return lambda state: in_turns(one, (state, sizes), config.runs_at_once)


def theory(config: Config) -> dict[str, Any]:
    """Risks to compare with the transformers, as in :func:`scores`.

    ``ridge`` and ``one_layer`` are exact; others are averages over pools unseen.
    """
    recipe, task = config.recipe, config.recipe.task()
    root = evaluation_key(recipe.seeds[0], "theory")
    points, draws = recipe.num_points, config.ridge_draws
    X = task.sample_inputs(jax.random.fold_in(root, 0), points, draws)
    given = jax.jit(jax.vmap(lambda X: reg.Bayes(task).risks_given(task, X)))(X)
    best = [reg.optimum(reg.LinearStep, task, k).risk for k in range(points)]
    keys = jax.random.split(jax.random.fold_in(root, 1), config.theory_pools)

    def over_pools(size):
        def one(key):
            drawn, *draws = jax.random.split(key, 3)
            pool, found = Pool(task, drawn, size), {}
            for name, source, draw in zip(BAYES, (pool, task), draws, strict=True):
                asked = source.sample(draw, points - 1, config.theory_prompts)
                prompt = asked.prefixes()
                own = scores(task, answers(pool, size, prompt), prompt)
                found[name] = {n: jnp.mean(value) for n, value in own.items()}
            return found

        return jax.device_get(jax.jit(lambda keys: jax.lax.map(one, keys))(keys))

    sampled = [over_pools(size) for size in config.finite_sizes]

    def column(value):
        each = {
            source: [np.asarray(value(at[source])) for at in sampled]
            for source in BAYES
        }
        return {source: [*map(Estimate.of, values)] for source, values in each.items()}

    return {
        "ridge": Estimate.of(np.asarray(given.mean(axis=-1), np.float64) / task.dim),
        "one_layer": float(jnp.mean(jnp.stack(best) - task.noise_var)) / task.dim,
        "linear_layer": linear_layers(config),
        "dmmse": column(lambda at: at[DMMSE]),
        "ridge_sampled": column(lambda at: at[RIDGE]),
        "ridge_minus_dmmse": column(lambda at: at[RIDGE] - at[DMMSE]),
    }


def linear_layers(config: Config) -> dict[str, np.ndarray]:
    """Exact errors, (sizes, seeds), of the layer of linear attention for each pool.

    It is the best one on unlimited prompts of the pool, one for each k.
    """
    task, sizes = config.recipe.task(), range(config.recipe.num_points)

    @jax.jit
    def risks(second_moment):
        moments = task.input_cov, task.task_mean, second_moment
        own = reg.LinearPopulation(*moments, task.noise_var)
        best = [reg.optimum(reg.LinearStep, own, k) for k in sizes]
        new = [reg.risk(one.model, task, k) for k, one in enumerate(best)]
        found = {POOL: [one.risk for one in best], NEW: new}
        excess = {s: jnp.stack(of).mean() - task.noise_var for s, of in found.items()}
        return {source: value / task.dim for source, value in excess.items()}

    rows = []
    for size, seed in config.runs():
        w = Pool.of_seed(task, seed, size).members(jnp.arange(size))
        rows.append(risks(w.T @ w / size if size else task.task_cov))
    shape = len(config.pool_sizes), len(config.recipe.seeds)
    return {s: np.reshape([float(row[s]) for row in rows], shape) for s in (POOL, NEW)}


# --- what follows from it


def by_size(config: Config, measured: list[dict]) -> dict[str, dict[str, np.ndarray]]:
    """Mean scores of the runs by source and name, (sizes, seeds)."""
    shape = len(config.pool_sizes), len(config.recipe.seeds)
    found = {}
    for source, names in measured[0].items():
        means = {n: [r[source][n].mean(dtype=float) for r in measured] for n in names}
        found[source] = {name: np.reshape(x, shape) for name, x in means.items()}
    return found


def over_training(config: Config, records: Any, new: dict) -> tuple[list[int], Any]:
    """log10 of distance to dMMSE / distance to ridge at some steps, (sizes, steps)."""
    known = [r for r in records if CLOSENESS in r and r["step"] < config.recipe.steps]
    runs = [np.asarray(r[CLOSENESS], float) for r in known]
    runs.append(np.log10(new[TO_DMMSE] / new[TO_RIDGE]).ravel())
    shape = len(runs), len(config.pool_sizes), len(config.recipe.seeds)
    means = np.reshape(runs, shape).mean(axis=-1).T
    steps = [*(record["step"] for record in known), config.recipe.steps]
    return steps, means[: len(config.finite_sizes)]


def crossings(config: Config, scored: dict[str, np.ndarray]) -> np.ndarray:
    """Pool size at which the transformer becomes closer to ridge than to dMMSE.

    By seed the last change of sign, interpolated in log M; NaN if it never changes.
    """
    logs, found = np.log(config.finite_sizes), []
    for values in np.log(scored[TO_RIDGE] / scored[TO_DMMSE])[: len(logs)].T:
        places = np.flatnonzero((values[:-1] > 0) & (values[1:] <= 0))
        if not len(places):
            found.append(np.nan)
            continue
        i = places[-1]
        part = values[i] / (values[i] - values[i + 1])
        found.append(np.exp(logs[i] + part * (logs[i + 1] - logs[i])))
    return np.array(found)


def pythagoras(config: Config, measured: list[dict], source: str) -> float:
    """Largest z-score of E|f - w'x|^2 = E|bayes - w'x|^2 + E|f - bayes|^2.

    Bayes is dMMSE for the pool and ridge for new tasks; a pool of one has no test.
    """
    bayes, found = BAYES[source], [0.0]
    for (size, _), run in zip(config.runs(), measured, strict=True):
        if size == 1 and source == POOL:
            continue
        of = {name: np.asarray(v, float) for name, v in run[source].items()}
        gap = Estimate.of(of[MODEL] - of[bayes] - of[f"{MODEL} - {bayes}"])
        found.append(abs(gap.mean) / gap.standard_error)
    return largest(found)


def checks(config: Config, scored: dict, measured: list, lines: dict) -> list[Check]:
    """Checks the theoretical lines, and the transformer against Raventos et al."""
    pool, new, gain = scored[POOL], scored[NEW], lines["ridge_minus_dmmse"]
    ridge, found = lines["ridge"], []

    def at_most(name, value, reference=0.0, slack=0.0):
        found.append(Check(name, value, reference, "<=", slack))

    def near(name, estimate, value, error=None):
        error = estimate.standard_error if error is None else error
        found.append(Check(name, estimate.mean, value, "within", SIGMAS * error))

    worst = largest(-g.mean - 3 * g.standard_error for g in gain[POOL])
    at_most("dMMSE minus ridge on the pool, less 3 s.e., largest", worst)
    sampled = lines["ridge_sampled"][NEW][-1]
    error = np.hypot(sampled.standard_error, ridge.standard_error)
    name = "ridge on new tasks, sampled against averaged exactly"
    near(name, sampled, ridge.mean, error)
    if config.finite_sizes[0] == 1:
        # The error is |w - w_1|^2 / d at every k, since the single task of the pool is
        # predicted.
        near("dMMSE of one task on new tasks", lines["dmmse"][NEW][0], 2.0)
    small = gain[NEW][0]
    name = "ridge minus dMMSE of the smallest pool on new tasks"
    at_most(name, small.mean, slack=-3 * small.standard_error)
    for source in BAYES:
        name = f"error minus (Bayes error + distance) on {source} tasks, largest |z|"
        at_most(name, pythagoras(config, measured, source), SIGMAS)
    name = "transformer of the smallest pool on its tasks, against a tenth of ridge"
    at_most(name, pool[MODEL][0].mean(), ridge.mean / 10)
    name = "transformer without a pool, against the best layer of linear attention"
    at_most(name, new[MODEL][-1].mean(), lines["one_layer"])
    name = "smallest pool: distance to dMMSE / distance to ridge, on its tasks"
    at_most(name, 1 / (pool[TO_RIDGE] / pool[TO_DMMSE])[0].mean(), 1.0)
    name = "largest pool: distance to ridge / distance to dMMSE, on new tasks"
    at_most(name, (new[TO_RIDGE] / new[TO_DMMSE])[-2].mean(), 1.0)
    gains = estimates((new[MODEL] - new[DMMSE])[:-1])
    best = min(gains, key=lambda estimate: estimate.mean)
    name = "transformer minus dMMSE of its pool on new tasks, at the best size"
    at_most(name, best.mean, slack=-3 * best.standard_error)
    return found


def estimates(values: np.ndarray) -> list[Estimate]:
    """Mean and standard error over the seeds for every pool size."""
    return [Estimate.of(np.asarray(row)) for row in values]


# --- what is reported


def compared(config: Config, scored: dict, lines: dict, source: str) -> Any:
    """The table of errors and distances by pool size for one source of prompts."""
    of, rows = scored[source], []
    known = (of[MODEL], of[DMMSE], of[TO_DMMSE], of[TO_RIDGE])
    columns = [estimates(values) for values in known]
    columns.insert(2, [*lines["dmmse"][source], lines["ridge"]])
    for size, values in zip(config.pool_sizes, zip(*columns, strict=True), strict=True):
        cells = [f"{value.mean:.4f} ({value.standard_error:.4f})" for value in values]
        rows.append([f"{size:,}" if size else "no pool", *cells])
    heads = ["M", "transformer", "dMMSE, same pools", "dMMSE, theory"]
    heads += ["to dMMSE", "to ridge"]
    title = f"{source} tasks: squared errors and distances / d, mean over k (s.e.); "
    title += f"ridge {lines['ridge'].mean:.4f}"
    return frame.table(rows, heads, title)


def draw(
    config: Config,
    panels: dict[str, dict],
    ylabel: str,
    linear: tuple[str, ...] = (),
    marks: Mapping[str, float] = MappingProxyType({}),
) -> Any:
    """Errors or distances against the number of tasks, a panel for each source."""
    recipe, finite = config.recipe, np.log2(config.finite_sizes)
    places = np.append(finite, finite[-1] + 1.5 * (finite[-1] - finite[-2]))
    title = f"GPT-2 of {recipe.num_layers} layers, d = {recipe.dim}, k = 0 to "
    title += f"{recipe.num_points - 1}, noise variance {recipe.noise_var:g}; "
    title += f"{recipe.steps:,} steps of {recipe.batch_size} prompts\n"
    title += f"{len(recipe.seeds)} pools per size; bars and bands: 2 standard errors"
    with frame.panels(1, len(panels), title, figsize=(10.4, 4.0)) as (made, grid):
        for axes, (source, curves) in zip(grid, panels.items(), strict=True):
            ends, every = [], []
            for label, (values, kind, method) in curves.items():
                mean, error = np.asarray([[*value] for value in values], float).T
                look = {"color": METHODS[method], "label": label}
                draw_curve(axes, places, mean, error, kind, **look)
                known = mean[np.isfinite(mean)]
                ends.append((float(known[-1]), label, METHODS[method]))
                every += [*known[known > 0]]
            if source in marks:
                place, grey = float(np.log2(marks[source])), {"color": "grey"}
                axes.axvline(place, linewidth=0.9, linestyle=":", zorder=0, **grey)
                where = {"xycoords": ("data", "axes fraction"), "fontsize": 8, **grey}
                where["textcoords"] = "offset points"
                text = f"crosses at M = {marks[source]:.0f}"
                axes.annotate(text, (place, 1), (3, -10), **where)
            ticks = [f"{size:,}" for size in config.finite_sizes]
            axes.set_xticks(places, [*ticks, "no pool"], rotation=45, ha="right")
            axes.set(title=TITLES[source], xlabel="tasks M in the pool")
            if source in linear:
                axes.set_ylim(bottom=0)
            else:
                plain_log_axis(axes.yaxis, max(every) / min(every))
                axes.set_ylim(min(every) / 1.7, max(every) * 1.9)
            name_ends(axes, ends)
        grid[0].set_ylabel(ylabel)
    return made


def draw_curve(
    axes: Any, x: Any, mean: Any, error: Any, kind: str, **look: Any
) -> None:
    """A formula's line, dashed or not, or measured dots, open or not."""
    if kind in ("-", "--", ":"):
        axes.plot(x, mean, kind, **look)
        band = mean - 2 * error, mean + 2 * error
        axes.fill_between(x, *band, color=look["color"], alpha=0.2, linewidth=0)
        return
    # An error bar that reaches 0 has no lower end on a logarithmic axis.
    bars = np.stack([np.minimum(2 * error, mean * (1 - 1e-3)), 2 * error])
    face = look["color"] if kind == "o" else "none"
    look |= {"fmt": kind, "markersize": 5, "capsize": 2, "linewidth": 1, "zorder": 5}
    axes.errorbar(x, mean, bars, markerfacecolor=face, **look)


def draw_errors(config: Config, scored: dict, lines: dict) -> Any:
    """The error of the transformer with its two references."""
    ridge = [lines["ridge"]] * len(config.pool_sizes)
    panels = {
        source: {
            "transformer": (estimates(of[MODEL]), "o", MODEL),
            # Without a pool the limit is ridge, the posterior mean for Gaussian tasks.
            "dMMSE, all pools": ([*lines["dmmse"][source], ridge[0]], "-", DMMSE),
            "dMMSE, these pools": (estimates(of[DMMSE]), "D", DMMSE),
            "ridge (exact)": (ridge, "--", RIDGE),
            "linear layer (exact)": (
                [(mean, 0.0) for mean in lines["linear_layer"][source].mean(axis=1)],
                ":",
                LINEAR,
            ),
        }
        for source, of in scored.items()
    }
    # On its pool dMMSE has error 0 at M = 1, which a log axis cannot show.
    return draw(config, panels, "squared error / d, mean over k", linear=(POOL,))


def draw_distances(config: Config, scored: dict, crossed: dict) -> Any:
    """The transformer's distance to each reference, and theirs to each other."""
    panels, finite, marks = {}, np.array(config.pool_sizes) > 0, {}
    for source, of in scored.items():
        between = np.where(finite, of[f"{DMMSE} - {RIDGE}"].mean(axis=1), np.nan)
        panels[source] = {
            "transformer to dMMSE": (estimates(of[TO_DMMSE]), "o", DMMSE),
            "transformer to ridge": (estimates(of[TO_RIDGE]), "o", RIDGE),
            "dMMSE to ridge": ([(mean, 0.0) for mean in between], "--", MODEL),
        }
        known = crossed[source][np.isfinite(crossed[source])]
        if len(known):
            marks[source] = float(np.exp(np.log(known).mean()))
    return draw(config, panels, "squared distance / d, mean over k", marks=marks)


def draw_phases(config: Config, steps: list[int], values: np.ndarray) -> Any:
    """Which predictor the transformer is closer to, by pool size and step."""
    recipe = config.recipe
    title = (
        "Distance of the transformer to dMMSE over its distance to ridge\n(new tasks; "
    )
    title += f"d = {recipe.dim}; geometric mean of {len(recipe.seeds)} pools)\n"
    title += "blue: closer to dMMSE, red: closer to ridge"
    rows = [f"{size:,}" for size in config.finite_sizes[::-1]]
    names = {"xlabel": "training step", "ylabel": "tasks in the pool"}
    columns = [f"{step:,}" for step in steps]
    with frame.figure([""], 1, title, 3.4) as ((axes,), _):
        # Colours end at a factor of 3; a pool of one task is far beyond.
        look: Any = {"limit": 0.5, "write": lambda ratio: f"{10**ratio:.2g}"}
        heat_map(values[::-1], ax=axes, rows=rows, columns=columns, **names, **look)
    return axes.figure


def report(config: Config, measured: list[dict], lines: dict, fitted: Any) -> Report:
    scored = by_size(config, measured)
    steps, course = over_training(config, fitted.records, scored[NEW])
    crossed = {source: crossings(config, of) for source, of in scored.items()}
    tables = []
    for source, sizes in crossed.items():
        tables.append(compared(config, scored, lines, source))
        at = ", ".join(f"{size:.0f}" for size in sizes)
        tables.append(f"closer to ridge on {source} tasks from M = {at} (by seed)")
    exact: dict[str, Any] = {
        "ridge": [*lines["ridge"]],
        "one_layer": lines["one_layer"],
        "linear_layer": lines["linear_layer"],
    }
    for name in ("dmmse", "ridge_minus_dmmse"):
        own = lines[name].items()
        exact[name] = {source: [[*one] for one in of] for source, of in own}
    numbers = {
        "pool_sizes": list(config.pool_sizes),
        "transformer": scored,
        "over_training": {"steps": steps, CLOSENESS: course},
        "theory": exact,
        "crossings": crossed,
        "timing": asdict(fitted.timing),
    }
    return Report(
        numbers,
        checks=checks(config, scored, measured, lines),
        tables=tables,
        figures={
            "errors.png": draw_errors(config, scored, lines),
            "distances.png": draw_distances(config, scored, crossed),
            "phases.png": draw_phases(config, steps, course),
        },
        axes={
            "transformer.*.*": ["pool size", "seed"],
            f"over_training.{CLOSENESS}": ["pool size", "training step"],
            "theory.*.*": ["pool size", "mean and standard error"],
            "theory.ridge": ["mean and standard error"],
            "theory.linear_layer.*": ["pool size", "seed"],
            "crossings.*": ["seed"],
        },
    )


@frame.experiment(PRESETS)
def main(config, run):
    scored = scorers(config)
    with run.phase("training"):
        fitted = train(config, run, scored)
    with run.phase("evaluation"):
        measured = measure(config, fitted.state.params, scored)
    with run.phase("theory"):
        lines = theory(config)
    return report(config, measured, lines, fitted)


frame.program(__name__, main)
