"""Chain of thought against plain in-context learning (Li et al., arXiv 2410.02167).

Trains the model of equation (11) on error-free prompts. Figures 17 and 18: CoT error
against prompt length for alpha', tau and rho. Figure 19: CoT and plain ICL on the same
prompts. Figure 20: attention along training. Beside them attention that counts votes,
proved bounds and limits. Intervals are Student's t over seeds.
"""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from icltheory import chain_of_thought as cot
from icltheory.batching import in_turns
from icltheory.plotting import COLOURS, Curve, error_curves, panel_grid
from icltheory.plotting.style import plain_log_axis
from icltheory.statistics import Estimate

FRACTION, TAU, RHO = SWEPT = "alpha'", "tau", "rho"
EVEN_FRACTION, EVEN_TAU = "alpha', even errors", "tau, even errors"
SLIDE, POPULAR, FAITHFUL = "slide", "popular answer", "right with .8"
TRAINED, COUNTING = "trained", "counting"
ERRORS = {"CoT": "mean", "ICL": "direct"}
LEVEL = 0.1  # the error for which a prompt must be long enough
SMALL = 0.03  # CoT is below this error where ICL is this close to its limit


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured."""

    seeds: tuple[int, ...]  # one training and set of test patterns each
    dim: int = 30  # dimension d of a pattern
    train_states: int = 20  # patterns M of training
    iterations: int = 400  # steps T of descent
    batch_size: int = 64  # prompts B a step
    train_examples: int = 20  # examples of a training prompt
    step_size: float = 3.0  # eta
    scale: float = 0.2  # delta, the start of the weights
    record_every: int = 10  # steps between two records of the attention masses
    chain_steps: int = 3  # steps K of the tasks of Figures 17, 18 and 20
    chain_fraction: float = 0.4  # alpha of their training, and alpha' where not varied
    compare_fraction: float = 0.5  # alpha of the training for two steps, Figure 19
    states: int = 10  # test patterns M' of Figures 17, 18 and 20
    # Prompt lengths of Figures 17 and 18, ascending.
    lengths: tuple[int, ...] = (5, 10, 20, 40, 60, 80, 100)
    fractions: tuple[float, ...] = (0.4, 0.6, 0.8, 1.0)  # values of alpha' in Figure 17
    taus: tuple[float, ...] = (0.4, 0.5, 0.6, 0.7)  # values of tau in Figure 18
    rho_of_taus: float = 0.88  # rho of those tasks
    rhos: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8)  # values of rho in Figure 18
    tau_of_rhos: float = 0.29  # tau of those tasks, and of the task of Figure 17
    # Prompt lengths of Figure 19, ascending and odd.
    compare_lengths: tuple[int, ...] = (11, 41, 81, 161, 321)
    compare_fractions: tuple[float, ...] = (1.0, 0.5)  # values of alpha' there
    draws: int = 4  # draws of the test patterns for each seed
    prompts: int = 125  # fresh prompts for each draw and setting of Figures 17 and 18
    compare_prompts: int = 250  # the same for Figure 19
    mass_prompts: int = 128  # prompts for the attention masses
    rows_at_once: int = 1  # seeds and draws that run side by side

    def __post_init__(self):
        counts = ("batch_size", "train_examples", "draws", "mass_prompts")
        counts += ("rows_at_once", "chain_steps", "iterations", "record_every")
        check_at_least(self, 1, *counts)
        check_at_least(self, 2, "prompts", "compare_prompts", "states")
        frame.check_seeds("seeds", self.seeds)
        frame.check_ascending(self, "lengths", "compare_lengths")
        odd, each = "odd numbers, at which two states do not tie", self.compare_lengths
        expect(all(length % 2 for length in each), "compare_lengths", odd, each)


GPU = Config(tuple(range(16)), prompts=1000, compare_prompts=1000, mass_prompts=512)
LONG = {"prompts": 4000, "compare_prompts": 4000, "mass_prompts": 1024}
PRESETS = {
    "cpu": Config(seeds=(0, 1, 2, 3, 4, 5)),
    "gpu": dataclasses.replace(GPU, rows_at_once=32),
    # Figure 20 ends at 1,000 iterations; its step size is not known.
    "paper": dataclasses.replace(GPU, rows_at_once=32, iterations=1000, **LONG),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "40 s, 2 cores"}


def sweeps(config) -> list[dict[str, Any]]:
    """Settings of Figures 17 and 18, and those with reference values."""
    K, M, alpha = config.chain_steps, config.states, config.chain_fraction

    def contested(tau, rho):
        return np.asarray(cot.contested_transitions(M, K, tau, rho))

    def even(tau):
        first = tau ** (1 / K)
        return contested(tau, 1 - (1 - first) / (M - 1) / first)

    base, whole = contested(config.tau_of_rhos, config.rhos[0]), even(0.8**K)
    rows = [
        *((FRACTION, a, base, a) for a in config.fractions),
        *((TAU, t, contested(t, config.rho_of_taus), alpha) for t in config.taus),
        *((RHO, r, contested(config.tau_of_rhos, r), alpha) for r in config.rhos),
        *((EVEN_FRACTION, a, whole, a) for a in config.fractions),
        *((EVEN_TAU, t, even(t), alpha) for t in config.taus),
    ]
    names = ("group", "value", "steps", "relevant_fraction")
    return [dict(zip(names, row, strict=True)) for row in rows]


def comparisons(config) -> list[dict[str, Any]]:
    """Settings of Figure 19, with the limit of ICL and the bounds at each length."""
    # Condition 1 fails for one input, for all, for none.
    tasks = {SLIDE: cot.slide_transitions(), POPULAR: cot.popular_answer_transitions()}
    tasks[FAITHFUL] = cot.faithful_transitions()
    rows, lengths = [], config.compare_lengths
    for (name, A), alpha in itertools.product(tasks.items(), config.compare_fractions):
        row = {"group": "comparison", "value": name, "relevant_fraction": alpha}
        with jax.enable_x64(True):
            task = cot.ReasoningTask(jnp.asarray(A, float), alpha)
            row |= {"steps": A, "icl_limit": task.icl_error_limit}
            row["cot_bound"] = cot.error(cot.ChainOfThought(), task, lengths).bound
            row["icl_bound"] = cot.error(cot.DirectAnswer(), task, lengths).bound
            rows.append(jax.device_get(row))
    return rows


def train(config, num_steps, fraction):
    """Alphabets, training and keys of each seed; every seed has its own patterns."""
    names = ("batch_size", "step_size", "record_every")
    options = {name: getattr(config, name) for name in names}

    def one(seed):
        letters, descent, later = jax.random.split(jax.random.key(seed), 3)
        sizes = config.train_states, num_steps, config.dim
        alphabet = cot.Alphabet.orthonormal(letters, *sizes)
        start = cot.ReasoningAttention.initial(config.dim, config.scale)
        tasks = cot.PermutationTasks(alphabet, fraction)
        sizes = config.train_examples, config.iterations
        path = cot.train_attention(start, tasks, *sizes, key=descent, **options)
        return alphabet, path, later

    return jax.jit(jax.vmap(one))(jnp.asarray(config.seeds))


def masses(config, ensemble):
    """Attention masses over training on error-free prompts, (seeds, T)."""
    alphabets, path, keys = ensemble
    K = alphabets.codes.shape[1]
    steps = jnp.stack([jnp.roll(jnp.eye(config.states), k, axis=1) for k in range(K)])

    def one(alphabet, models, key):
        letters, draws = jax.random.split(jax.random.fold_in(key, 0))
        unseen = alphabet.unseen(letters, config.states)
        task = cot.ReasoningTask(steps, config.chain_fraction, unseen)
        prompts = task.sample(draws, config.train_examples, config.mass_prompts)

        def at(model):
            found = jax.vmap(lambda p: cot.attention_masses(model, p))(prompts)
            return jax.tree.map(jnp.mean, found)

        return jax.lax.map(at, models)

    found = jax.jit(jax.vmap(one))(alphabets, path.models, keys)
    return jax.device_get(found)._asdict()


def measure(config, ensemble, settings, lengths, prompts, direct):
    """The settings with errors (seeds, lengths), trained and of counted votes."""
    # Both models see the same prompts, and those of all lengths begin with the same
    # examples. Settings of equal shape share one compiled program.
    alphabets, path, keys = ensemble
    models = jax.tree.map(
        lambda a, b: jnp.stack([a[:, -1], jnp.broadcast_to(b, a[:, -1].shape)]),
        path.models,
        cot.ReasoningAttention.matching(config.dim),
    )
    axes = (2, len(config.seeds), config.draws)
    places = jnp.asarray(np.indices(axes).reshape(len(axes), -1).T)

    @jax.jit
    def run(steps, fraction, number):
        def patterns(alphabet, key):
            draws = jax.random.split(jax.random.fold_in(key, 0), config.draws)
            return jax.vmap(lambda k: alphabet.unseen(k, steps.shape[1]))(draws)

        unseen = jax.vmap(patterns)(alphabets, keys)

        def row(place):
            kind, seed, draw = place
            model = jax.tree.map(lambda leaf: leaf[kind, seed], models)
            alphabet = jax.tree.map(lambda leaf: leaf[seed, draw], unseen)
            task = cot.ReasoningTask(steps, fraction, alphabet)
            own = jax.random.fold_in(jax.random.fold_in(keys[seed], 1 + number), draw)
            drawn = task.sample(own, lengths[-1], prompts)

            def wrong(predictor, limit):
                return jax.vmap(lambda p: p.wrong(predictor.answers(p, limit)))(drawn)

            def at(limit):
                chain = wrong(cot.ChainOfThought(model), limit)
                found = {"mean": chain, "final": chain[:, -1]}
                if direct:
                    found["direct"] = wrong(cot.DirectAnswer(model), limit)
                return {k: jnp.mean(x, dtype=jnp.float32) for k, x in found.items()}

            return jax.lax.map(at, jnp.asarray(lengths))

        return in_turns(row, places, config.rows_at_once)

    rows, shape = [], (*axes, len(lengths))
    for number, setting in enumerate(settings):
        steps = jnp.asarray(setting["steps"], jnp.float32)
        found = run(steps, setting["relevant_fraction"], number)
        errors = {k: np.asarray(x, float).reshape(shape) for k, x in found.items()}
        kinds = ({k: x[i].mean(axis=1) for k, x in errors.items()} for i in range(2))
        rows.append(setting | dict(zip((TRAINED, COUNTING), kinds, strict=True)))
    return rows


def needed(config, swept, group, kind):
    """Values of a sweep, and the lengths at which its CoT error reaches ``LEVEL``."""
    own = [row for row in swept if row["group"] == group]
    errors = [row[kind]["mean"].mean(axis=0) for row in own]
    lengths = [needed_length(each, config.lengths, LEVEL) for each in errors]
    return np.array([row["value"] for row in own], float), np.array(lengths)


def needed_length(errors, lengths, level):
    """Length at which the error reaches a level, log-linear between lengths, or NaN."""
    falls = np.maximum.accumulate(-np.log(np.maximum(errors, 1e-12)))
    return np.interp(-np.log(level), falls, lengths, left=np.nan, right=np.nan)


def slope(values, lengths):
    """Least-squares slope on log-log axes; NaN for fewer than two points."""
    known = np.isfinite(lengths)
    if known.sum() < 2:
        return float("nan")
    logs = np.log(values[known]), np.log(lengths[known])
    return float(np.polyfit(*logs, 1)[0])


def predicted(config, group, values):
    """Scaling of the needed length: as the bound on a vote proves, and by Theorem 5."""
    own = {FRACTION: config.chain_fraction, TAU: config.tau_of_rhos}
    own[RHO] = config.rho_of_taus if group == TAU else config.rhos[0]
    alpha, tau, rho = (own | {group: values}).values()
    proved = 1 / (alpha * tau * (1 - np.sqrt(1 - rho)) ** 2)
    return proved, (alpha * tau * rho) ** -2.0


def checks(config, losses, swept, compared):
    """The training loss, and errors that fall or reach their limit."""
    yield Check("training loss, last 20 steps", losses[:, -20:].mean(), 0.002, "<=")
    for group in SWEPT:
        rise = slope(*needed(config, swept, group, TRAINED))
        if np.isfinite(rise):
            yield Check(f"examples needed fall with {group}", rise, 0.0, "<=")
    end = config.compare_lengths[-1]
    for row in compared if end >= 321 else ():
        if row["relevant_fraction"] == 1:
            last = (Estimate.of(row[TRAINED][n][:, -1]) for n in ERRORS.values())
            (chain, direct), name = last, f"{row['value']}, l = {end}"
            upper, limit = chain.mean + chain.half_width(), row["icl_limit"]
            yield Check(f"{name}: CoT, upper end of its interval", upper, SMALL, "<=")
            name += ": ICL at its limit"
            yield Check(name, direct.mean, limit, "within", SMALL)


def claims(config, swept):
    """Compares how the needed length depends on alpha', tau and rho with the claims."""
    for group in SWEPT:
        values, trained = needed(config, swept, group, TRAINED)
        _, counting = needed(config, swept, group, COUNTING)
        known = (f"{l:.0f}".replace("nan", "-") for l in trained)
        pairs = zip(values, known, strict=True)
        lengths = ", ".join(f"{value:g}: {length}" for value, length in pairs)
        parts = (trained, counting, *predicted(config, group, values))
        own, votes, proved, asked = (slope(values, part) for part in parts)
        claim = f"examples needed fall with {group} as in the proof: slope "
        claim += f"{proved:.2f} (Theorem 5 asks for {asked:.2f})"
        said = f"{lengths}; slope {own:.2f}, votes counted {votes:.2f}"
        wanted = "slope on doubly logarithmic axes within .3"
        yield Claim(claim, said, abs(own - proved) <= 0.3, wanted)


def tables(config, compared):
    """CoT and ICL on the same prompts, with standard errors over seeds."""
    rows = []
    for row in compared:
        task = f"{row['value']}, {row['relevant_fraction']:g}"
        for name, kind, field, limit in (
            ("CoT", TRAINED, "mean", 0.0),
            ("CoT, votes counted", COUNTING, "mean", 0.0),
            ("ICL", TRAINED, "direct", row["icl_limit"]),
        ):
            means = zip(*Estimate.of(row[kind][field]), strict=True)
            cells = [f"{mean:.4f} ({error:.4f})" for mean, error in means]
            rows.append([task, name, *cells, f"{limit:g}"])
            task = ""
    heads = ["task", "error", *map(str, config.compare_lengths), "limit"]
    return [frame.table(rows, heads, "CoT and ICL, two steps (s.e. over seeds)")]


LOOKS = {
    "trained": {"marker": "o", "markersize": 4},
    "votes counted": {"linestyle": "--", "linewidth": 1.1},
    "proved bound": {"linestyle": ":", "linewidth": 1.3},
}


def draw_comparison(config, compared, floor=3e-4):
    """CoT and ICL on the same prompts; a triangle at the lower end stands for 0."""
    titles = {SLIDE: "fails for one input", POPULAR: "fails for all inputs"}
    titles[FAITHFUL] = "holds"
    lengths = np.asarray(config.compare_lengths)
    panels = {
        f"Condition 1 {titles[row['value']]}\n$\\alpha' = {alpha:g}$": row
        for alpha in config.compare_fractions
        for row in compared
        if row["relevant_fraction"] == alpha
    }
    title = "Errors of chain of thought (CoT) and of plain in-context learning (ICL), "
    title += "which tends to its limit"
    with frame.figure(panels, 3, title, 2.6, sharey=True) as (shown, entries):
        plain_log_axis(shown[0].yaxis, 1.0 / floor / 20)
        shown[0].set_ylim(floor / 1.3, 1.6)
        for axes, row in zip(shown, panels.values(), strict=True):
            limit, ends = row["icl_limit"], []
            for place, (name, field) in enumerate(ERRORS.items(), start=1):
                found, colour = Estimate.of(row[TRAINED][field]), COLOURS[place]
                bound, counted = (
                    row[f"{name.lower()}_bound"],
                    row[COUNTING][field].mean(axis=0),
                )
                lines = found.mean, counted, np.where(bound < 1, bound, np.nan)
                for line, look in zip(lines, LOOKS.values(), strict=True):
                    line = np.where(line > 0, line, np.nan)
                    axes.plot(lengths, line, color=colour, **look)
                none = lengths[found.mean <= 0]
                # Later markers are smaller, since they may coincide with earlier ones.
                axes.plot(none, 0 * none + floor, "v", color=colour, ms=9 - 2 * place)
                # A bar that reaches 0 has no lower end on a logarithmic axis.
                above = np.where(found.mean > 0, found.mean, np.nan)
                bars = np.minimum(found.half_width(), above * (1 - 1e-6))
                look = {"fmt": "none", "capsize": 2, "linewidth": 0.9, "color": colour}
                axes.errorbar(lengths, above, [bars, found.half_width()], **look)
                ends.append((max(float(found.mean[-1]), floor), name, colour))
            if limit:
                axes.axhline(limit, color="grey", linewidth=0.9, zorder=0)
                ends.append((float(limit), "limit", "0.4"))
            axes.set(xscale="log", xlabel="examples in the prompt (log scale)")
            axes.set_xticks(lengths, [f"{length:g}" for length in lengths])
            axes.set_xticks([], minor=True)
            frame.name_ends(axes, ends)
        for axes in shown[::3]:
            axes.set_ylabel("error")
        of = f"trained (95 % interval of {len(config.seeds)} trainings)"
        for name, look in zip((of, *[*LOOKS][1:]), LOOKS.values(), strict=True):
            entries[name] = frame.key(**look)
        none = {"linestyle": "", "marker": "v", "markersize": 4}
        entries["no error in the test"] = frame.key(**none)
    return shown[0].figure


def draw_needed(config, swept):
    """Lengths for a CoT error of ``LEVEL``, with guides through the last one."""
    quantities = {
        FRACTION: r"share of relevant examples $\alpha'$",
        TAU: r"least probability of a correct path $\tau$",
        RHO: r"least gap of the two likeliest states $\rho$",
    }
    look = {"log_x": True, "ylabel": f"examples for a CoT error of {LEVEL:g}"}
    title = "Prompt length against what Theorem 5 says it depends on"
    with panel_grid([""] * 3, 3, title, (2.8, 3.0), legend=False) as (figure, shown, _):
        for axes, (group, name) in zip(shown, quantities.items(), strict=True):
            values, trained = needed(config, swept, group, TRAINED)
            _, counted = needed(config, swept, group, COUNTING)
            curves = {"trained": Curve(trained), "votes counted": Curve(counted)}
            known = np.flatnonzero(np.isfinite(trained))
            if not len(known):
                continue
            lines = predicted(config, group, values)
            for guide, line in zip(("proof", "Theorem 5"), lines, strict=True):
                line = line * trained[known[-1]] / line[known[-1]]
                curves[guide] = Curve(line, exact=True)
            error_curves(curves, x=values, ax=axes, xlabel=name, **look)
            look["ylabel"] = ""
    return figure


def draw_mechanism(config, masses):
    """Attention on four classes of columns along training, mean and range of seeds."""
    curves = {}
    for name, values in masses.items():
        ends = values.min(axis=0), values.max(axis=0)
        curves[name.replace("_", " ")] = Curve(values.mean(axis=0), *ends)
    steps = np.arange(0, config.iterations + 1, config.record_every)
    look = {"log": False, "xlabel": "iteration", "ylabel": "share of the attention"}
    axes = error_curves(curves, x=steps, ylim=(0.0, 1.0), **look)
    axes.set_title(f"Mean and range of {len(config.seeds)} trainings")
    return axes.figure


def numbers(row, lengths):
    found = {k: of for k, of in row.items() if k not in ("steps", TRAINED, COUNTING)}
    found |= {"lengths": lengths, TRAINED: {}, COUNTING: {}}
    for kind in (TRAINED, COUNTING):
        for name, values in row[kind].items():
            mean, error = Estimate.of(values)
            found[kind] |= {name: mean, f"{name} standard error": error}
    return found


def report(config, along, losses, swept, compared):
    return Report(
        {
            "attention": along,
            "sweeps": [numbers(row, config.lengths) for row in swept],
            "comparison": [numbers(row, config.compare_lengths) for row in compared],
            "precision": "float32; theory float64",
        },
        checks=list(checks(config, losses, swept, compared)),
        tables=tables(config, compared),
        claims=list(claims(config, swept)),
        claims_title="what the theorems say of the length",
        figures={
            "needed.png": draw_needed(config, swept),
            "comparison.png": draw_comparison(config, compared),
            "mechanism.png": draw_mechanism(config, along),
        },
        interval_level=0.95,
        axes={"attention.*": ["seed", "record, every record_every iterations"]}
        | {f"sweeps.*.{kind}.*": ["prompt length"] for kind in (TRAINED, COUNTING)},
    )


def check(config, flags) -> None:
    """Raises where no task has the tau and rho of the config."""
    sweeps(config)


@frame.experiment(PRESETS, check=check)
def main(config, run):
    with jax.default_matmul_precision("highest"), jax.enable_x64(False):
        with run.phase("training, steps"):
            chains = train(config, config.chain_steps, config.chain_fraction)
            jax.block_until_ready(chains)
        with run.phase("attention along training"):
            along = masses(config, chains)
        with run.phase("training, two steps"):
            pairs = jax.block_until_ready(train(config, 2, config.compare_fraction))
        with run.phase("prompt lengths"):
            sizes = config.lengths, config.prompts, False
            swept = measure(config, chains, sweeps(config), *sizes)
        with run.phase("comparison"):
            sizes = config.compare_lengths, config.compare_prompts, True
            compared = measure(config, pairs, comparisons(config), *sizes)
    return report(config, along, chains[1].losses, swept, compared)


frame.program(__name__, main)
