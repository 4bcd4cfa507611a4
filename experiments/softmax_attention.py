"""Trained softmax heads on the curves of theory: risk, temperature, other lengths.

x ~ N(0, I), w ~ N(0, I), noise sigma^2. Layers of 1, 2 and 4 heads with free scores and
values, beside the best single head (exact, and to order 1/N), the centred gradient step
that two opposite heads make, and linear attention; then at other lengths. The training
loss is averaged over task and label noise given the inputs; only it is float32.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect, largest
from experiments.shared.training import clipped_adam, descended, drawn_states, fit
from icltheory import regression as reg
from icltheory.plotting import COLOURS, METHODS
from icltheory.plotting.style import plain_log_axis

# What is drawn for each number of heads: colour and marker.
LOOKS = {1: (COLOURS[1], "o"), 2: (COLOURS[2], "s"), 4: (COLOURS[3], "^")}
THEORY = {
    "one_head": ("best single head, exact", COLOURS[1], "-"),
    "one_head_order": ("the same to order 1/N", COLOURS[1], ":"),
    "centred": ("centred gradient step, N - 1 examples", COLOURS[2], "-"),
    "linear": ("linear attention", METHODS["one-layer optimum"], "--"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """The problem, and how the layers are trained and evaluated."""

    dim: int = 5  # input dimension d
    noise_var: float = 0.25  # variance of the label noise
    lengths: tuple[int, ...] = (10, 20, 40, 80, 160)  # examples N in training
    heads: tuple[int, ...] = (1, 2, 4)  # softmax heads of a layer
    others: tuple[int, ...] = (10, 20, 40, 80, 160, 320, 640)  # N of the transfer
    seeds: tuple[int, ...] = (0, 1, 2, 3)  # seeds of the trained layers
    steps: int = 2000  # training steps
    batch_size: int = 64  # inputs per step
    learning_rate: float = 0.02  # largest step size of Adam
    init_std: float = 0.3  # standard deviation of scores and values at the start
    test_prompts: int = 20_000  # inputs for the risk of a trained layer
    chunk_steps: int = 200  # steps per dispatch, and per line of metrics.jsonl
    checkpoint_every: int = 1000  # steps between checkpoints

    def __post_init__(self):
        counts = ("dim", "steps", "batch_size", "chunk_steps", "checkpoint_every")
        check_at_least(self, 1, *counts)
        check_at_least(self, 2, "test_prompts")
        check_at_least(self, 0, "noise_var")
        check_at_least(self, 5, "lengths", "others")
        wanted = f"the lengths {self.lengths} and others"
        expect({*self.lengths} <= {*self.others}, "others", wanted, self.others)
        fits = 1 in self.heads and {*self.heads} <= {*LOOKS}
        expect(fits, "heads", "1 and some of 2 and 4", self.heads)
        frame.check_seeds("seeds", self.seeds)


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "5 min, 2 cores"}


def weights(B: Any, values: Any, X: Any, x: Any, N: Any) -> Any:
    """Attention to the first N rows of X, summed over heads."""
    scores = jnp.einsum("nd,hde,e->hn", X, B, x)
    seen = jnp.arange(len(X)) < N
    p = jax.nn.softmax(jnp.where(seen[None], scores, -jnp.inf), axis=1)
    return jnp.einsum("h,hn->n", values, p)


def error_given(model: Any, X: Any, x: Any, N: Any, noise_var: float) -> Any:
    """Squared error without the query's noise, averaged over task and label noise."""
    a = weights(model["B"], model["values"], X, x, N)
    return jnp.sum((a @ X - x) ** 2) + noise_var * jnp.sum(a**2)


def train(config: Config, run: Any) -> dict[int, dict[str, np.ndarray]]:
    """Trained scores and values by the number of heads, axes (length, seed, head)."""
    return {heads: train_heads(config, heads, run) for heads in config.heads}


def train_heads(config: Config, heads: int, run: Any) -> dict[str, np.ndarray]:
    """Trains the layers of one number of heads, all lengths and seeds at once."""
    cases = [(N, seed) for N in config.lengths for seed in config.seeds]
    optimizer, d = clipped_adam(config.learning_rate, config.steps), config.dim
    most, lengths = max(config.lengths), jnp.asarray([N for N, _ in cases])

    def draw(key):
        keys, normal = jax.random.split(key), jax.random.normal
        B = normal(keys[0], (heads, d, d), jnp.float32) / d**0.5
        model = {"B": B, "values": normal(keys[1], (heads,), jnp.float32)}
        return jax.tree.map(lambda leaf: config.init_std * leaf, model)

    def loss(model, key, N):
        drawn = jax.random.normal(key, (config.batch_size, most + 1, d), jnp.float32)
        each = jax.vmap(error_given, (None, 0, 0, None, None))
        given = drawn[:, :-1], drawn[:, -1], N, config.noise_var
        return jnp.mean(each(model, *given)) / d

    begun = drawn_states(draw, optimizer, [seed for _, seed in cases])
    step = jax.vmap(partial(descended, loss, optimizer))
    look = {"label": f"training {len(cases)} layers of {heads} heads"}
    look["name"] = f"heads{heads}"
    fitted = fit(lambda state: step(state, lengths), begun, run, config, **look)
    shape = len(config.lengths), len(config.seeds)
    return {
        name: np.asarray(leaf, np.float64).reshape(*shape, *leaf.shape[1:])
        for name, leaf in fitted.state.params.items()
    }


def evaluate(config: Config, models: dict) -> dict[int, np.ndarray]:
    """Risks and standard errors, axes (length trained for, seed, other length, 2)."""
    each = jax.vmap(error_given, (None, 0, 0, None, None))

    @jax.jit
    def errors(models, drawn):
        given = drawn[:, :-1], drawn[:, -1], drawn.shape[1] - 1, config.noise_var
        one = jax.vmap(jax.vmap(lambda model: each(model, *given)))
        return {heads: one(model) for heads, model in models.items()}

    found: dict[int, list] = {heads: [] for heads in models}
    for N in config.others:
        keys = jax.random.split(jax.random.key(N), 20)
        sizes = max(1, config.test_prompts // 20), N + 1, config.dim
        seen = [errors(models, jax.random.normal(key, sizes, float)) for key in keys]
        for heads, rows in found.items():
            own = np.concatenate([part[heads] for part in seen], axis=-1)
            error = own.std(axis=-1) / own.shape[-1] ** 0.5
            risk = own.mean(axis=-1) + config.noise_var
            rows.append(np.stack([risk, error], axis=-1))
    return {heads: np.stack(rows, axis=2) for heads, rows in found.items()}


def population(config: Config) -> reg.LinearPopulation:
    return reg.LinearPopulation.isotropic(config.dim, config.noise_var)


def theory(config: Config) -> dict[str, np.ndarray]:
    """Predicted risks by length, and the scale and value of the best single head."""
    task, eye, found = population(config), jnp.eye(config.dim), {}
    families = {
        "one_head": reg.SoftmaxHead(eye, None),
        "one_head_order": reg.SoftmaxHeads(eye[None]),
        "centred": reg.DebiasedStep,
        "linear": reg.LinearStep,
    }
    for name, family in families.items():
        best = [reg.optimum(family, task, N) for N in config.lengths]
        found[name] = np.array([float(one.risk) for one in best])
        if isinstance(family, reg.SoftmaxHeads):
            scales = [float(jnp.ravel(one.model.B)[0]) for one in best]
            values = [float(jnp.ravel(one.model.values)[0]) for one in best]
            found[f"{name}_scale"] = np.array(scales)
            found[f"{name}_value"] = np.array(values)
    return found


def transfer(config: Config, models: dict) -> dict[int, np.ndarray]:
    """Risks at other lengths: exact of one head with tr(B) I / d, else to order 1/N."""
    task, lengths, found = population(config), jnp.asarray(config.others), {}

    @jax.jit
    @jax.vmap
    def exact(B, values):
        scale = jnp.trace(B[0]) / config.dim
        head = reg.SoftmaxHead(scale * jnp.eye(config.dim), values[0])
        return jax.lax.map(lambda N: reg.risk(head, task, N), lengths)

    @jax.jit
    @jax.vmap
    def order(B, values):
        head = reg.SoftmaxHeads(B, values)
        return jax.vmap(lambda N: reg.risk_expansion(head, task, N).risk)(lengths)

    for heads, model in models.items():
        flat = [model[k].reshape(-1, *model[k].shape[2:]) for k in ("B", "values")]
        risks = np.asarray((exact if heads == 1 else order)(*map(jnp.asarray, flat)))
        found[heads] = risks.reshape(*model["values"].shape[:2], -1)
    return found


def settings(config: Config, models: dict, risks: dict, known: dict) -> list[dict]:
    """One row for each number of heads and length: trained layers beside theory."""
    rows = []
    for heads, model in models.items():
        scale = np.trace(model["B"], axis1=-2, axis2=-1) / config.dim
        for i, N in enumerate(config.lengths):
            mean, error = risks[heads][i, :, config.others.index(N)].T
            best, theirs = int(mean.argmin()), "one_head" if heads == 1 else "centred"
            row = {"heads": heads, "num_examples": N, "trained": mean}
            row |= {"trained_error": error, "best": mean[best], "best_seed": best}
            # -B and -v alone act as B and v do, since the inputs are symmetric.
            row |= {"scale": np.abs(scale[i, best]).mean()}
            row |= {"value": np.abs(model["values"][i, best]).sum()}
            both = (scale[i].min(1) < 0) & (scale[i].max(1) > 0)
            row |= {"opposite": int(np.sum(both))}
            row |= {"reached": int(np.sum(mean <= 1.05 * known[theirs][i]))}
            rows.append(row | {name: known[name][i] for name in known})
    return rows


def transfers(config: Config, rows: list[dict], risks: dict, predicted: dict) -> list:
    """For the best seed of each setting its risks at all lengths beside theory."""
    found = []
    for row in rows:
        heads, N = row["heads"], row["num_examples"]
        at = config.lengths.index(N), row["best_seed"]
        mean, error = risks[heads][at].T
        own = {"heads": heads, "trained_for": N, "lengths": list(config.others)}
        own |= {"risk": mean, "error": error, "predicted": predicted[heads][at]}
        found.append(own)
    return found


def checks(config: Config, rows: list[dict], moved: list[dict]) -> list[Check]:
    """Trained layers against the theory that should hold for them."""
    ones = [row for row in rows if row["heads"] == 1]
    long = [r for r in rows if r["heads"] > 1 and r["num_examples"] >= 4 * config.dim]
    own = [row for row in moved if row["heads"] == 1]
    risk = largest(abs(row["best"] / row["one_head"] - 1) for row in ones)
    scale = largest(abs(row["scale"] / row["one_head_scale"] - 1) for row in ones)
    away = largest(np.abs(row["risk"] / row["predicted"] - 1).max() for row in own)
    several = largest(row["best"] / row["centred"] for row in long)
    return [
        Check("one head: risk over the exact, less 1", risk, 0.0, "within", 0.03),
        Check("one head: scale over the exact, less 1", scale, 0.0, "within", 0.1),
        Check("one head at other lengths, less 1", away, 0.0, "within", 0.05),
        Check("several heads over centred step, N >= 4 d", several, 1.05, "<="),
    ]


def claims(config: Config, rows: list[dict]) -> list[Claim]:
    """What the theory says about temperatures and opposite heads."""
    ones = [row for row in rows if row["heads"] == 1]
    more = [row for row in rows if row["heads"] > 1]
    scales = [(row["scale"], row["one_head_order_scale"]) for row in ones]
    pairs = ", ".join(f"{found:.2f} ({order:.2f})" for found, order in scales)
    close = [abs(found / order - 1) < 0.1 for found, order in scales]
    signs = sum(row["opposite"] for row in more)
    total = len(more) * len(config.seeds)
    return [
        Claim("one head has the temperature of the order 1/N", pairs, all(close)),
        Claim("several heads oppose each other", f"{signs} of {total}", signs == total),
    ]


def risk_table(rows: list[dict]) -> Any:
    columns = {"heads": "{heads}", "N": "{num_examples}", "trained": "{best:.4g}"}
    columns |= {"one head": "{one_head:.4g}", "order 1/N": "{one_head_order:.4g}"}
    columns |= {"centred": "{centred:.4g}", "linear": "{linear:.4g}"}
    columns |= {"scale": "{scale:.3f}", "one head's": "{one_head_scale:.3f}"}
    columns |= {"reached": "{reached}", "opposite": "{opposite}"}
    title = "risks of the best seed beside theory; scale of the scores; seeds within "
    title += "5 % of one head or centred step, and seeds whose heads oppose each other"
    return frame.table(rows, columns, title)


def draw(config: Config, rows: list[dict], moved: list[dict]) -> Any:
    """Risk and temperature along N, and risk at other lengths."""
    N, noise, d = np.array(config.lengths), config.noise_var, config.dim
    title = f"d = {d}, $\\sigma^2$ = {noise:g}: trained (marks) and theory (lines)"
    with frame.panels(1, 3, title, figsize=(12.6, 4.2)) as (figure, (left, mid, right)):
        for name, (label, colour, style) in THEORY.items():
            known = np.array([row[name] for row in rows[: len(N)]])
            left.plot(N, known - noise, style, color=colour, label=label)
        for shift, (heads, (colour, marker)) in enumerate(LOOKS.items()):
            own = [row for row in rows if row["heads"] == heads]
            look: Any = {"color": colour, "mec": "white", "ms": 6, "ls": ""}
            label = f"{heads} head{'s' * (heads > 1)}"
            for place, row in enumerate(own):
                x = row["num_examples"] * 1.05 ** (shift - 1)
                look["label"] = None if place else f"{label}, every seed"
                y = row["trained"] - noise
                left.plot(np.full(len(y), x), y, marker, **look)
            if heads < 4 and own:
                look["label"] = f"{label}, best seed"
                mid.plot(N, [row["scale"] for row in own], marker, **look)
        for name in ("one_head", "one_head_order"):
            known = [row[f"{name}_scale"] for row in rows[: len(N)]]
            mid.plot(N, known, THEORY[name][2], color=COLOURS[1], label=THEORY[name][0])
        for row in moved:
            place = config.lengths.index(row["trained_for"])
            if row["heads"] == 2 or place % 2 == 0:
                continue
            colour, marker = LOOKS[row["heads"]]
            look = {"color": colour, "alpha": 1.0 if place == 1 else 0.5}
            style = "-" if row["heads"] == 1 else ":"
            right.plot(row["lengths"], row["predicted"] - noise, style, **look)
            label = f"{row['heads']} head{'s' * (row['heads'] > 1)}"
            look |= {"label": f"{label}, trained for N = {row['trained_for']}"}
            right.plot(row["lengths"], row["risk"] - noise, marker, **look)
        left.set(xlabel="examples, N", ylabel="excess over the noise")
        mid.set(xlabel="examples, N", ylabel="scale of the scores")
        right.set(xlabel="examples, N, of the test", ylabel="excess over the noise")
        for axes in (left, mid, right):
            axes.set_xscale("log")
            shown = config.others if axes is right else config.lengths
            axes.set_xticks(shown, [str(x) for x in shown])
            axes.set_xticks([], minor=True)
            axes.legend(fontsize=7)
        for axes in (left, right):
            plain_log_axis(axes.yaxis, 1e2)
    return figure


def report(config: Config, models: dict, known: dict, far: dict, risks: dict) -> Any:
    rows = settings(config, models, risks, known)
    moved = transfers(config, rows, risks, far)
    precision = "float32 training; theory and evaluation in float64"
    return Report(
        {"settings": rows, "transfer": moved, "precision": precision},
        checks=checks(config, rows, moved),
        tables=[risk_table(rows)],
        claims=claims(config, rows),
        figures={"softmax.png": draw(config, rows, moved)},
        axes={"settings.*.trained": ["seed"], "transfer.*.risk": ["length"]},
    )


@frame.experiment(PRESETS)
def main(config, run):
    with run.phase("training"):
        models = train(config, run)
    with run.phase("theory"), jax.enable_x64(True):
        known, far = theory(config), transfer(config, models)
    with run.phase("evaluation"), jax.enable_x64(True):
        risks = evaluate(config, models)
    return report(config, models, known, far, risks)


frame.program(__name__, main)
