"""Tiny models, a tokenizer and tasks on which evaluations are compared."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.bridge import (
    Architecture,
    Decoder,
    Evaluator,
    Experts,
    LanguageModel,
    Rotary,
)
from icltheory.bridge.tasks import Example, LanguageTask, PromptTemplate
from icltheory.pruning import Intervention

WORDS = ("red", "wet", "sky", "sea", "was", "the", "ice", "sun", "low", "far")


class Letters:
    """A token a letter; a word behind a space is one token if it is among ``words``."""

    def __init__(self, words=("pos", "neg", "odd"), bos=True, vocab=128):
        self.words, self.bos, self.vocab = words, bos, vocab

    def encode(self, text, special=True):
        ids, i = [1] if special and self.bos else [], 0
        while i < len(text):
            fits = (k for k, w in enumerate(self.words) if text.startswith(" " + w, i))
            word = next(fits, None)
            ids.append(self.letter(text[i]) if word is None else 2 + word)
            i += 1 if word is None else 1 + len(self.words[word])
        return ids

    def letter(self, character):
        """Token of a letter; several share one where the vocabulary is small."""
        first = 2 + len(self.words)
        return first + ord(character) % min(96, self.vocab - first)


def sentences(count, seed, longest):
    """Texts of few lengths, since every length of a prompt compiles."""
    rng = np.random.default_rng(seed)
    return [
        " ".join(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(count)
    ]


def made_task(rows, count, labels, template, changes):
    """A task whose first examples validate; the others are demonstrations."""
    values = {
        "name": "toy",
        "profile": "paper",
        "kind": "classification",
        "labels": labels,
        "demonstrations": tuple(rows[count:]),
        "validation": tuple(rows[:count]),
        "test": (),
        "template": template,
    }
    return LanguageTask(**(values | changes))


def classification(count=11, demonstrations=4, seed=0, longest=2, **changes):
    """A task with three labels of one token each."""
    texts = sentences(count + demonstrations, seed, longest)
    rows = [Example({"text": t}, i % 3, i) for i, t in enumerate(texts)]
    labels = ("pos", "neg", "odd")
    template = PromptTemplate("{text}\n : {label}\n", "{text}\n :", labels)
    return made_task(rows, count, labels, template, changes)


def with_test(task, examples):
    """The task with a test set of other texts, in capitals."""
    other = [
        e._replace(fields={k: v.upper() for k, v in e.fields.items()}) for e in examples
    ]
    return dataclasses.replace(task, test=tuple(other))


def choice(count=7, demonstrations=3, seed=1, longest=1, **changes):
    """A task with two options, of different lengths, an example."""
    total = count + demonstrations
    texts = sentences(total, seed, longest)
    options = iter(sentences(2 * total, seed + 1, longest=2))
    rows = [
        Example({"text": text, "a": next(options), "b": next(options)}, i % 2, i)
        for i, text in enumerate(texts)
    ]
    template = PromptTemplate("{text}\n{label}\n", "{text}\n", options=("{a}", "{b}"))
    usual = {"name": "pick", "kind": "choice", "scoring": "average_log_likelihood"}
    return made_task(rows, count, ("1", "2"), template, usual | changes)


_TURN = Rotary(frequencies=(1.0, 0.3))
_LLAMA = {"norm": "rms", "activation": "silu", "gated": True, "rotary": _TURN}
_SIZES = {
    "vocab_size": 128,
    "width": 16,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 4,
    "head_dim": 4,
    "mlp_width": 24,
    "max_positions": 160,
}
FAMILIES = {
    "gpt2": dict.fromkeys(("attention_bias", "output_bias", "mlp_bias", "tied"), True),
    "gptj": {
        "parallel": True,
        "shared_norm": True,
        "rotary": Rotary(frequencies=(1.0,), interleaved=True),
        "mlp_bias": True,
        "head_bias": True,
    },
    "llama": _LLAMA,
    "experts": {**_LLAMA, "experts": Experts(3, 2)},
    "groups": {**_LLAMA, "num_kv_heads": 2, "sliding_window": 9},
    "mixed": {
        "norm": "rms_plus_one",
        "gated": True,
        "post_norm": True,
        "rotary": _TURN,
        "local_rotary": Rotary(frequencies=(0.7, 0.1)),
        "num_kv_heads": 2,
        "qk_norm": "head",
        "query_scalar": 3.0,
        "score_cap": 1.5,
        "logit_cap": 2.5,
        "sliding_window": (9, None, 9),
    },
}


LETTERS = Letters()


@functools.cache
def tiny(family, tokenizer=LETTERS, dtype="float64", **sizes):
    """A random model whose answers differ from example to example.

    In float64, where what is the same by algebra is the same to many digits.
    """
    arch = Architecture(family=family, **(_SIZES | FAMILIES[family] | sizes))
    decoder = Decoder(arch)
    rng = np.random.default_rng(1)

    def draw(path, leaf):
        blocks = "layers" in str(path[0])
        wide = 0.1 if leaf.ndim == 1 else 1.0 if blocks else 0.5
        values = wide * rng.standard_normal(leaf.shape) + ("scale" in str(path[-1]))
        return jnp.asarray(values, leaf.dtype)

    shapes = jax.eval_shape(lambda key: decoder.init(key, dtype), jax.random.key(0))
    params = jax.tree_util.tree_map_with_path(draw, shapes)
    return LanguageModel(decoder, params, tokenizer, source=family)


def at_rates(model, task, layer, module, rates, split="validation", shots=None, **how):
    """Evaluations of a model with one module pruned at several strengths."""
    models = [Intervention(layer, module, rate) for rate in rates]
    return Evaluator(model, task, shots, **how).evaluate(split, models)
