"""The search over clipping rates against evaluating every pruned model plainly.

Command
    python -m benchmarks.prune_search

On a CPU a random model of 12 layers in float32, whose answers have to be equal; a few
minutes. On a GPU a random model of the size of GPT-J-6B in bfloat16, whose answers may
differ where two labels are nearer than rounding; under ten minutes, 20 GB.

Both sides are compiled and warm, answer the same examples in full, and are given the
same pruned weights; decompositions are timed apart. The plain way is batch 1, the whole
prompt through all layers, logits of the whole vocabulary at every token.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from icltheory.bridge import Architecture, Decoder, LanguageModel, Rotary
from icltheory.bridge.evaluation import (
    Evaluation,
    Prompts,
    evaluate_naive,
    evaluate_rates,
    tokenize,
)
from icltheory.bridge.tasks import Example, Prompt, Task
from icltheory.layered import get_matrix, replace_matrix
from icltheory.linalg import svd
from icltheory.pruning import module_matrices, rank_for_rate

RATES = (0.0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
LABELS = ("negative", "positive")


class Case(NamedTuple):
    """A model's size, a number of examples, and what is pruned."""

    arch: Architecture
    dtype: Any
    examples: int
    batch_size: int
    modules: tuple[tuple[int, str], ...]


def gpt_j(layers: int, width: int, vocabulary: int) -> Architecture:
    """GPT-J's blocks at some size."""
    heads = max(width // 256, 4)
    return Architecture(
        family="gptj",
        vocab_size=vocabulary,
        width=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=width // heads,
        mlp_width=4 * width,
        max_positions=2048,
        parallel=True,
        shared_norm=True,
        rotary=Rotary(tuple(10000.0 ** (-i / 32) for i in range(32)), interleaved=True),
        mlp_bias=True,
        head_bias=True,
    )


CPU = Case(gpt_j(12, 256, 8192), jnp.float32, 64, 16, ((10, "mlp"), (11, "attn")))
GPU = Case(gpt_j(28, 4096, 50400), jnp.bfloat16, 128, 64, ((26, "mlp"), (27, "attn")))


class Words:
    """A token a word; the two labels are the last two tokens."""

    def __init__(self, size: int):
        self.size = size

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Tokens of a text."""
        labels = {word: self.size - 2 + i for i, word in enumerate(LABELS)}
        return [labels[w] if w in labels else int(w) for w in text.split()]


def task_of(count: int, vocabulary: int) -> Task:
    """Ten demonstrations and questions, with lengths as those of SST-2."""
    rng = np.random.default_rng(0)

    def text(length: int) -> str:
        return " ".join(map(str, rng.integers(0, vocabulary - 2, length)))

    # A few lengths only: for the plain way each is a program.
    lengths = [*rng.choice([12, 15, 18, 21], count), *[18] * 10]
    rows = tuple(
        Example({"text": text(length)}, i % 2, i) for i, length in enumerate(lengths)
    )
    template = Prompt("{text} 7 {label} 8\n", "{text} 7", LABELS)
    return Task(
        name="words",
        profile="paper",
        kind="classification",
        labels=LABELS,
        demonstrations=rows[count:],
        validation=rows[:count],
        test=(),
        template=template,
    )


def model_of(case: Case) -> LanguageModel:
    """Random weights, large enough that pruning changes answers."""
    decoder = Decoder(case.arch)
    params = decoder.init(jax.random.key(0), case.dtype)
    return LanguageModel(decoder, params, Words(case.arch.vocab_size), source="random")


class Systems:
    """Singular systems, decomposed once and timed."""

    def __init__(self, matrices: list[jax.Array]):
        start = time.perf_counter()
        with jax.default_matmul_precision("highest"):
            self.kept = {id(W): svd(W.astype(jnp.float32)) for W in matrices}
        jax.block_until_ready([parts.s for parts in self.kept.values()])
        self.seconds = time.perf_counter() - start

    def of(self, W: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The system of a matrix."""
        parts = self.kept[id(W)]
        return parts.U, parts.s, parts.Vt

    def cut(self, W: jax.Array, rate: float) -> jax.Array:
        """The matrix at one rate."""
        if rate == 0:
            return W
        with jax.default_matmul_precision("highest"):
            cut = self.kept[id(W)].truncate(rank_for_rate(W.shape, rate))
        return cut.astype(W.dtype)


def layer_tokens(prompts: Prompts, layer: int, layers: int) -> float:
    """Tokens through a layer the plain way, over those of the shared way."""
    own, prefix = sum(map(len, prompts.rows)), len(prompts.prefix)
    plain = len(RATES) * (own + prefix * prompts.num_examples) * layers
    return plain / ((prefix + own) * (layer + len(RATES) * (layers - layer)))


def timed(function) -> tuple[Any, float]:
    """A result and the seconds it took; evaluations wait for the device."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def row(case: Case, model: LanguageModel, task: Task, layer: int, module: str) -> list:
    """Times of one search both ways."""
    specs = module_matrices(model, layer, module)
    matrices = [get_matrix(model.params, spec) for spec in specs]
    systems = Systems(matrices)

    def search() -> tuple[Evaluation, ...]:
        options = {"batch_size": case.batch_size, "systems": systems}
        return evaluate_rates(model, task, layer, module, RATES, **options)

    def pruned(rate: float) -> LanguageModel:
        params = model.params
        for spec, W in zip(specs, matrices, strict=True):
            params = replace_matrix(params, spec, systems.cut(W, rate))
        return model.replace(params=params)

    models = [pruned(rate) for rate in RATES]
    _, first = timed(search)
    ours, fast = min((timed(search) for _ in range(3)), key=lambda found: found[1])
    evaluate_naive(model, task)
    plain, slow = timed(lambda: [evaluate_naive(each, task) for each in models])
    print(
        f"layer {layer} {module}: {slow:.1f} s plainly, {fast:.2f} s shared", flush=True
    )
    differ, effect = compare(case, ours, plain)
    tokens = layer_tokens(tokenize(model, task), layer, case.arch.num_layers)
    return [
        f"layer {layer}, {module}",
        *(slow, fast, slow / fast, tokens, first - fast, systems.seconds),
        *(1e3 * slow / len(RATES) / len(task.validation), differ, effect),
    ]


def compare(case: Case, ours: Any, plain: Any) -> tuple[str, str]:
    """How many answers differ, by rounding only, and how many pruning changes."""
    a, b = (np.stack([e.scores for e in found]) for found in (ours, plain))
    chosen, other = (np.stack([e.predictions for e in f]) for f in (ours, plain))
    gap = np.abs(b[..., 0] - b[..., 1])
    wrong = chosen != other
    error = np.abs(a - b).max()
    assert not (wrong & (gap > 2 * error)).any()
    if case.dtype == jnp.float32:
        assert not wrong.any()
        assert error < 1e-4
    return f"{wrong.sum()} ({error:.1g})", f"{(other != other[:1]).sum()}/{other.size}"


def main() -> None:
    on_gpu = jax.default_backend() == "gpu"
    if not on_gpu:
        jax.config.update("jax_default_matmul_precision", "highest")
    case = GPU if on_gpu else CPU
    model, task = model_of(case), task_of(case.examples, case.arch.vocab_size)
    prompts = tokenize(model, task)
    rows = [row(case, model, task, *pruned) for pruned in case.modules]
    a, own = case.arch, np.mean([len(r) for r in prompts.rows])
    _measure.table(
        f"search over {len(RATES)} rates: {a.num_layers} layers of width {a.width}, "
        f"{jnp.dtype(case.dtype).name}, {case.examples} prompts of "
        f"{len(prompts.prefix)} + {own:.0f} tokens, {jax.devices()[0].device_kind}",
        ["", "plain s", "shared s", "x faster", "x fewer layer-tokens", "compile s"]
        + [
            "svd s",
            "plain ms/prompt",
            "answers that differ (by)",
            "changed by pruning",
        ],
        rows,
    )


if __name__ == "__main__":
    main()
