"""The search over clipping rates, compared with evaluating every pruned model in full.

Command
    python -m benchmarks.prune_search

On a CPU a random model of 12 layers in float32, whose answers have to be equal. On a
GPU a random model of the size of GPT-J-6B in bfloat16, whose answers may differ where
two labels are nearer than rounding; under ten minutes, 20 GB.

Both sides are compiled and warm and are given the same pruned weights; decompositions
are timed apart. The plain way is batch 1, the whole prompt through all layers, logits
of the whole vocabulary at every token. Within a budget it answers a few of the examples
and is scaled up; alone it answers all of them, some minutes.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _alone, _measure, _suite
from benchmarks._suite import BenchmarkRow, Budget
from icltheory.bridge import Architecture, Decoder, LanguageModel, Rotary
from icltheory.bridge.evaluation import (
    Evaluation,
    Prompts,
    evaluate_naive,
    evaluate_rates,
    tokenize,
)
from icltheory.bridge.tasks import Example, LanguageTask, PromptTemplate
from icltheory.layered import get_matrix, replace_matrix
from icltheory.linalg import svd
from icltheory.pruning import module_matrices, rank_for_rate

RATES = (0.0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
LABELS = ("negative", "positive")
# Number of examples for the plain evaluation when time is short.
SAMPLE = 8
FIELDS = ("scores", "predictions")


class SearchCase(NamedTuple):
    """Model size, number of examples, and the modules to prune."""

    arch: Architecture
    dtype: Any
    examples: int
    batch_size: int
    modules: tuple[tuple[int, str], ...]


def gpt_j(layers: int, width: int, vocabulary: int) -> Architecture:
    """Returns an architecture with GPT-J's blocks at a given size."""
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


CPU = SearchCase(gpt_j(12, 256, 8192), jnp.float32, 64, 16, ((10, "mlp"), (11, "attn")))
GPU = SearchCase(
    gpt_j(28, 4096, 50400), jnp.bfloat16, 128, 64, ((26, "mlp"), (27, "attn"))
)


class Words:
    """A tokenizer with one token per word; the two labels are the last two tokens."""

    def __init__(self, size: int):
        self.size = size

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Returns the tokens of a text."""
        labels = {word: self.size - 2 + i for i, word in enumerate(LABELS)}
        return [labels[w] if w in labels else int(w) for w in text.split()]


def task_of(count: int, vocabulary: int) -> LanguageTask:
    """Builds a task of ten demonstrations and questions with SST-2's lengths."""
    rng = np.random.default_rng(0)

    def text(length: int) -> str:
        return " ".join(map(str, rng.integers(0, vocabulary - 2, length)))

    # There are only a few lengths, since the plain evaluation compiles for each.
    lengths = [*rng.choice([12, 15, 18, 21], count), *[18] * 10]
    rows = tuple(
        Example({"text": text(length)}, i % 2, i) for i, length in enumerate(lengths)
    )
    template = PromptTemplate("{text} 7 {label} 8\n", "{text} 7", LABELS)
    return LanguageTask(
        name="words",
        profile="paper",
        kind="classification",
        labels=LABELS,
        demonstrations=rows[count:],
        validation=rows[:count],
        test=(),
        template=template,
    )


def model_of(case: SearchCase) -> LanguageModel:
    """Builds a model whose random weights are large, so that pruning has an effect."""
    decoder = Decoder(case.arch)
    params = decoder.init(jax.random.key(0), case.dtype)
    return LanguageModel(decoder, params, Words(case.arch.vocab_size), source="random")


class Systems:
    """Singular value decompositions of several matrices, with the time they took."""

    def __init__(self, matrices: list[jax.Array]):
        start = time.perf_counter()
        with jax.default_matmul_precision("highest"):
            self.kept = {id(W): svd(W.astype(jnp.float32)) for W in matrices}
        jax.block_until_ready([parts.s for parts in self.kept.values()])
        self.seconds = time.perf_counter() - start

    def of(self, W: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns the singular value decomposition of a matrix."""
        parts = self.kept[id(W)]
        return parts.U, parts.s, parts.Vt

    def cut(self, W: jax.Array, rate: float) -> jax.Array:
        """Returns the matrix clipped at one rate."""
        if rate == 0:
            return W
        with jax.default_matmul_precision("highest"):
            cut = self.kept[id(W)].truncate(rank_for_rate(W.shape, rate))
        return cut.astype(W.dtype)


def layer_tokens(prompts: Prompts, layer: int, layers: int) -> float:
    """Returns the ratio of tokens per layer, plain over shared evaluation."""
    own, prefix = sum(map(len, prompts.rows)), len(prompts.prefix)
    plain = len(RATES) * (own + prefix * prompts.num_examples) * layers
    return plain / ((prefix + own) * (layer + len(RATES) * (layers - layer)))


def operations(prompts: Prompts, arch: Architecture, layer: int) -> float:
    """Counts operations: ``layer`` shared blocks, and the others for each rate."""
    # A token in a block takes 24 width^2 in products, and 4 width for each token it
    # attends to. The output head is left out, since few tokens need it.
    own, prefix = sum(map(len, prompts.rows)), len(prompts.prefix)
    seen = prefix * prefix / 2 + own * (prefix + own / prompts.num_examples / 2)
    block = 24 * arch.width**2 * (prefix + own) + 4 * arch.width * seen
    return block * (layer + len(RATES) * (arch.num_layers - layer))


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures searches at the layers and modules of the case."""
    on_gpu = jax.default_backend() == "gpu"
    case = GPU if on_gpu else CPU
    model, task = model_of(case), task_of(case.examples, case.arch.vocab_size)
    full = math.isinf(budget.seconds) and not budget.quick
    few = dataclasses.replace(task, validation=task.validation[:SAMPLE])
    prompts = tokenize(model, task)
    own = np.mean([len(r) for r in prompts.rows])
    group = (
        f"Search over {len(RATES)} rates, {case.arch.num_layers} layers of width "
        f"{case.arch.width}, {case.examples} prompts of {len(prompts.prefix)} + "
        f"{own:.0f} tokens"
    )
    compute = functools.partial(row, case, model, task, task if full else few)
    cases = [
        _suite.Case(
            f"layer {layer}, {module}",
            150 if on_gpu else 40,
            functools.partial(compute, layer, module),
        )
        for layer, module in case.modules
    ]
    yield from _suite.each(group, budget, cases)


def row(
    case: SearchCase,
    model,
    task: LanguageTask,
    some: LanguageTask,
    layer: int,
    module: str,
) -> BenchmarkRow:
    """Times one search, and the plain evaluation on some of the examples."""
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
    # The evaluations are NumPy arrays, so they have already waited for the device.
    _, first = _measure.once(search)
    ours, fast = min((_measure.once(search) for _ in range(3)), key=lambda f: f[1])
    evaluate_naive(model, some)
    items = [(each, some) for each in models]
    plain, part = _measure.part_of_loop(evaluate_naive, items, len(items))
    answered, total = len(some.validation), len(task.validation)
    error, note = compare(case, ours, plain)
    if answered < total:
        note += f"; alternative timed on {answered} prompts, scaled"
    prompts = tokenize(model, task)
    tokens = layer_tokens(prompts, layer, case.arch.num_layers)
    dtype = jnp.dtype(case.dtype).name
    exact = dtype == "float32"
    return BenchmarkRow(
        ours_s=fast,
        alternative="a prompt at a time, all layers",
        alternative_s=part * total / answered,
        floor_s=_measure.floor(
            operations(prompts, case.arch, layer),
            _measure.nbytes(model.params),
            dtype=dtype,
            precision="highest" if exact else None,
        ),
        precision=dtype,
        error=error,
        tolerance=1e-4 if exact else 1e-1,
        note=note,
        facts={
            "fewer layer-tokens x": tokens,
            "compile s": first - fast,
            "decompositions s": systems.seconds,
        },
    )


def compare(case: SearchCase, ours: Any, plain: Any) -> tuple[float, str]:
    """Compares scores and checks that predictions differ by rounding only.

    Raises:
        ValueError: If an answer differs by more.
    """
    b, chosen = (np.stack([getattr(e, name) for e in plain]) for name in FIELDS)
    count = b.shape[1]
    a, other = (np.stack([getattr(e, name)[:count] for e in ours]) for name in FIELDS)
    gap, wrong = np.abs(b[..., 0] - b[..., 1]), chosen != other
    doubtful = wrong & (gap <= 2 * np.abs(a - b).max())
    if case.dtype == jnp.float32:
        doubtful = np.zeros_like(wrong)
    worse = (wrong & ~doubtful).sum()
    if worse:
        raise ValueError(
            f"predictions: expected the same up to rounding, got {worse} of "
            f"{wrong.size} that differ by more"
        )
    changed = (chosen != chosen[:1]).sum()
    note = f"pruning changes {changed} of {chosen.size} answers, {wrong.sum()} differ"
    return _measure.disagreement(a, b), note


if __name__ == "__main__":
    _alone.main(measure)
