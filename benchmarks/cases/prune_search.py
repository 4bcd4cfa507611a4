"""The search over clipping rates, and evaluating every pruned model in full.

On a CPU a random model of 12 layers in float32, whose answers have to be equal. On a
GPU a random model of the size of GPT-J-6B in bfloat16, whose answers may differ where
two labels are nearer than rounding; under ten minutes, 20 GB.

Both sides are compiled and warm and are given the same pruned weights; decompositions
are timed apart. The plain way is batch 1, the whole prompt through all layers, logits
of the whole vocabulary at every token.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machine import floor
from benchmarks.suite import Pair, case, disagreement, named, nbytes, on_gpu, once
from benchmarks.torch_search import RATES
from icltheory.bridge import (
    Architecture,
    Decoder,
    Evaluator,
    LanguageModel,
    Rotary,
    evaluate_naive,
    prune_model,
)
from icltheory.bridge.evaluation import Prompts, tokenize
from icltheory.bridge.tasks import Example, LanguageTask, PromptTemplate
from icltheory.layered import get_matrix
from icltheory.linalg import svd
from icltheory.pruning import Intervention, module_matrices

LABELS = ("negative", "positive")
# Number of examples for the plain evaluation.
SAMPLE = 8


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


# Architecture, dtype, examples, batch size; layers and modules to prune.
if on_gpu():
    MODEL = (gpt_j(28, 4096, 50400), "bfloat16", 128, 64)
    MODULES = ((26, "mlp"), (27, "attn"))
else:
    MODEL = (gpt_j(12, 256, 8192), "float32", 64, 16)
    MODULES = ((10, "mlp"), (11, "attn"))
GROUP = (
    f"Search over {len(RATES)} rates, {MODEL[0].num_layers} layers of width "
    f"{MODEL[0].width}, {MODEL[2]} prompts of 210 + 18 tokens"
)


class Words:
    """A tokenizer with one token per word; the two labels are the last two tokens."""

    def __init__(self, size: int):
        self.size = size

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Returns the tokens of a text."""
        labels = {word: self.size - 2 + i for i, word in enumerate(LABELS)}
        return [labels[w] if w in labels else int(w) for w in text.split()]


def task_of(
    rng: np.random.Generator, lengths: Any, shots: list[int], vocabulary: int
) -> LanguageTask:
    """Builds a task of random words: questions and demonstrations of given lengths."""
    count = len(lengths)

    def text(length: int) -> str:
        return " ".join(map(str, rng.integers(0, vocabulary - 2, length)))

    rows = tuple(
        Example({"text": text(length)}, i % 2, i)
        for i, length in enumerate([*lengths, *shots])
    )
    return LanguageTask(
        name="words",
        profile="paper",
        kind="classification",
        labels=LABELS,
        demonstrations=rows[count:],
        validation=rows[:count],
        test=(),
        template=PromptTemplate("{text} 7 {label} 8\n", "{text} 7", LABELS),
    )


class Systems:
    """Singular value decompositions of several matrices."""

    def __init__(self, matrices: list[jax.Array]):
        with jax.default_matmul_precision("highest"):
            self.kept = {id(W): svd(W.astype(jnp.float32)) for W in matrices}

    def of(self, W: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns the singular value decomposition of a matrix."""
        parts = self.kept[id(W)]
        return parts.U, parts.s, parts.Vt


def counts(prompts: Prompts, arch: Architecture, layer: int) -> tuple[float, float]:
    """Returns the operations of the search, and how many times fewer layer-tokens."""
    # ``layer`` blocks are shared, the others run for each rate. A token in a block
    # takes 24 width^2 in products, and 4 width for each token it attends to. The output
    # head is left out, since few tokens need it.
    own, prefix = sum(map(len, prompts.rows)), len(prompts.prefix)
    seen = prefix * prefix / 2 + own * (prefix + own / prompts.num_examples / 2)
    block = 24 * arch.width**2 * (prefix + own) + 4 * arch.width * seen
    blocks = layer + len(RATES) * (arch.num_layers - layer)
    plain = own + prefix * prompts.num_examples
    fewer = len(RATES) * plain * arch.num_layers / ((prefix + own) * blocks)
    return block * blocks, fewer


@case(GROUP, named("layer {}, {}", MODULES))
def bench_search(layer: int, module: str) -> Pair:
    arch, dtype, count, batch = MODEL
    # There are only a few lengths, since the plain evaluation compiles for each.
    rng = np.random.default_rng(0)
    task = task_of(rng, rng.choice([12, 15, 18, 21], count), [18] * 10, arch.vocab_size)
    some = dataclasses.replace(task, validation=task.validation[:SAMPLE])
    decoder = Decoder(arch)
    # The random weights are large, so that pruning has an effect.
    params = decoder.init(jax.random.key(0), jnp.dtype(dtype))
    words = Words(arch.vocab_size)
    model = LanguageModel(decoder, params, words, source="random")
    specs = module_matrices(model, layer, module)
    matrices = [get_matrix(params, spec) for spec in specs]
    systems, deciding = once(lambda: Systems(matrices))
    pruned = [Intervention(layer, module, rate) for rate in RATES]
    models = [prune_model(model, one, systems=systems) for one in pruned]
    options = {"batch_size": batch, "systems": systems}

    def search():
        return Evaluator(model, task, **options).evaluate("validation", pruned)

    evaluate_naive(model, some)
    plain, _ = once(lambda: [evaluate_naive(one, some) for one in models])
    chosen = np.stack([each.predictions for each in plain])
    prompts = tokenize(model, task)
    flops, fewer = counts(prompts, arch, layer)
    exact = dtype == "float32"
    return Pair(
        search,
        lambda: [evaluate_naive(one, some) for one in models],
        "a prompt at a time, all layers",
        (len(some.validation), count, "prompts"),
        floor=floor(flops, nbytes(params), dtype=dtype, exact=exact),
        precision=dtype,
        error=lambda ours, plain: compare(ours, plain, exact),
        tolerance=1e-4 if exact else 1e-1,
        note=f"pruning changes {(chosen != chosen[:1]).sum()} of {chosen.size} answers",
        facts={"fewer layer-tokens x": fewer, "decompositions s": deciding},
    )


def compare(ours: Any, plain: Any, exact: bool) -> float:
    """Difference of scores; raises if an answer differs by more than rounding."""
    fields = ("scores", "predictions")
    b, chosen = (np.stack([getattr(e, name) for e in plain]) for name in fields)
    count = b.shape[1]
    a, other = (np.stack([getattr(e, name)[:count] for e in ours]) for name in fields)
    gap, wrong = np.abs(b[..., 0] - b[..., 1]), chosen != other
    worse = wrong if exact else wrong & (gap > 2 * np.abs(a - b).max())
    if worse.any():
        raise ValueError(
            f"predictions: expected the same up to rounding, got {worse.sum()} of "
            f"{wrong.size} that differ by more"
        )
    return disagreement(a, b)
