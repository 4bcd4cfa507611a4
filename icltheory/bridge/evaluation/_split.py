"""Scores of one data split by several pruned models, which share what they can.

The prefix and the layers below a pruned one run once; the pruned layer and those above
run for all strengths in one program.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from icltheory.bridge.decoder import block, embed
from icltheory.bridge.evaluation import _programs as programs
from icltheory.bridge.evaluation.batches import (
    Answers,
    Batch,
    PackedBatches,
    most_pairs,
)
from icltheory.bridge.evaluation.prompts import Prompts
from icltheory.bridge.model import check_weights
from icltheory.bridge.sharding import by_rows, replicated
from icltheory.bridge.streams import KV, Stream, Tokens, padded_tokens
from icltheory.layered import MatrixSpec


def prefix_tokens(prefix: Sequence[int], limit: int) -> Tokens:
    """Pads a prefix on the left to one of few lengths, so that programs are shared."""
    # Multiples of 32, and from 256 on four lengths between a power of two and the next.
    step = 1 << max(5, len(prefix).bit_length() - 3)
    length = min(-(-len(prefix) // step) * step, limit)
    return padded_tokens([prefix], length, left=True)


class Branch:
    """The layers from a pruned one on, at several strengths.

    Args:
        split: The unpruned layers, advanced to the pruned one.
        specs: Its pruned matrices, as paths within the layer; none for the whole model.
        matrices: For each of them a stack over the strengths.
    """

    def __init__(
        self,
        split: "SplitEvaluator",
        specs: tuple[MatrixSpec, ...],
        matrices: tuple[jax.Array, ...],
    ):
        self.split, self.layer = split, split.layer
        self.specs, self.matrices = specs, matrices
        rates = matrices[0].shape[0] if matrices else 1
        self.before: Any = (np.zeros(rates, np.float32), np.int32(0))
        self.caches: list[KV | None] = [None] * (split.decoder.num_layers - self.layer)
        if split.prefix is not None:
            needed = split.prompts.measure == "mean_logit"
            stream, self.caches = self._run(split.prefix, not needed)
            if needed:
                self.before = programs.prefix_logits(split.decoder, split.ends, stream)

    def __call__(self, stream: Stream, answers: Answers) -> jax.Array:
        """Measures of sequences that enter the layer, (R, B S, K or 1)."""
        split, measure = self.split, self.split.prompts.measure
        # Other measures need more than the last token of a row.
        stream, _ = self._run(stream, measure == "label_token")
        return programs.score(
            split.decoder, measure, split.ends, stream, answers, self.before
        )

    def _run(self, stream, last_only):
        caches, decoder = [], self.split.decoder
        for layer, prefix in enumerate(self.caches, self.layer):
            weights, own = self.split.params["layers"][layer], decoder.of_layer(layer)
            last = last_only and layer == decoder.num_layers - 1
            if layer == self.layer:
                args = (own, self.specs, last, weights, self.matrices)
                stream, cache = programs.fan_out(*args, stream, prefix)
            else:
                stream, cache = programs.above(own, last, weights, stream, prefix)
            caches.append(cache)
        return stream, caches


class SplitEvaluator:
    r"""Scores of a split by models that are pruned at one place or another.

    Of |V| questions of q tokens behind a prefix of P tokens, with |C| strengths at
    layer l of L, that is

    .. math:: (P + |V|\, q)\, (l + |C|\, (L - l)) \quad \text{instead of} \quad
        |C|\, |V|\, (P + q)\, L

    tokens through a layer. Nothing of a batch outlives it but its scores. ``strengths``
    are the most of a branch. The prefix is at the input of ``layer``, and ``caches``
    has its keys and values in the layers below.
    """

    def __init__(self, model: Any, prompts: Prompts, batch_size: int, strengths: int):
        self.model, self.decoder, self.params = model, model.decoder, model.params
        self.prompts, self.batch_size = prompts, batch_size
        self.shape = (model.arch.width, batch_size, most_pairs(model, strengths))
        self.batches = PackedBatches(prompts, *self.shape)
        _check_prompts(model.arch, prompts)
        self.ends = programs.ends_for(self.params, prompts.measure, prompts.label_ids)
        self.layer, self.caches = 0, list[KV | None]()
        self.prefix: Stream | None = None
        if prompts.prefix:
            tokens = prefix_tokens(prompts.prefix, model.arch.max_positions)
            self.prefix = self._embed(tokens, 0)
        self.branches: dict[Any, Branch] = {}
        self._weights_are_known = False

    def _embed(self, tokens: Tokens, start: int) -> Stream:
        table = self.params["embed"]
        tokens = by_rows(tokens, table["tokens"])
        return embed(self.decoder, table, tokens, np.int32(start))

    def _block(self, layer: int, stream: Stream, prefix: KV | None):
        weights, decoder = self.params["layers"][layer], self.decoder.of_layer(layer)
        return block(decoder, False, weights, stream, prefix)

    def add(
        self,
        key: Any,
        layer: int,
        specs: tuple[MatrixSpec, ...] = (),
        matrices: tuple[jax.Array, ...] = (),
    ) -> None:
        """Adds a branch at a layer that is not below the last added one."""
        for index in range(self.layer, layer):
            cache = None
            if self.prefix is not None:
                self.prefix, cache = self._block(index, self.prefix, None)
            self.caches.append(cache)
        self.layer = max(self.layer, layer)
        self.branches[key] = Branch(self, specs, matrices)

    def stream(self, examples: Any = None) -> Iterator[tuple[Any, np.ndarray, Any]]:
        """Yields keys, examples and scores (R, b, K), with one batch computed ahead."""
        waiting: list[Any] = []
        kept: dict[Any, np.ndarray] = {}
        for batch in self.batches(examples):
            scores = self._scores(batch, self.branches)
            running = [(key, batch, found) for key, found in scores]
            yield from self._fetch(waiting, kept)
            waiting = running
        yield from self._fetch(waiting, kept)

    def _scores(self, batch: Batch, branches: Mapping[Any, Branch]):
        stream = self._embed(batch.tokens, len(self.prompts.prefix))
        layer = 0
        for key, branch in branches.items():
            for index in range(layer, branch.layer):
                stream, _ = self._block(index, stream, self.caches[index])
            layer = branch.layer
            yield key, branch(stream, batch.answers)

    def _fetch(self, running, kept):
        for key, batch, measures in running:
            examples = batch.complete
            measures = self._of_examples(measures, batch, kept, key)
            if not len(examples):
                continue
            wrong = np.isnan(measures).any(axis=(0, 2))
            if wrong.any() and not self._weights_are_known:
                check_weights(self.model, tokens=False)
                self._weights_are_known = True
            if wrong.any() and batch.tokens.ends is not None:
                # One sequence of a row may have made all others NaN, since 0 times NaN
                # is NaN.
                measures[:, wrong] = self._alone(key, examples[wrong])
            yield key, examples, self.prompts.scores(measures, examples)

    def _of_examples(self, measures, batch, kept, key):
        """Measures (R, n, K) of the examples that a batch completes.

        ``kept`` has those of all sequences until the other options are there.
        """
        found, p = np.asarray(replicated(measures))[:, batch.places], self.prompts
        if key not in kept:
            kept[key] = np.empty((len(found), len(p.rows), found.shape[2]), found.dtype)
        kept[key][:, batch.sequences] = found
        whole = kept[key].reshape(len(found), p.num_examples, p.num_options)
        return whole[:, batch.complete]

    def _alone(self, key, examples):
        """Measures of examples whose sequences each have a row of their own."""
        kept: dict[Any, np.ndarray] = {}
        for batch in PackedBatches(self.prompts, *self.shape, alone=True)(examples):
            ((_, measures),) = self._scores(batch, {key: self.branches[key]})
            self._of_examples(measures, batch, kept, key)
        p = self.prompts
        return kept[key].reshape(-1, p.num_examples, p.num_options)[:, examples]


def _check_prompts(arch, prompts):
    """Raises if a score would depend on the batch, or on more than the mean row."""
    longest = len(prompts.prefix) + max(len(row) for row in prompts.rows)
    if arch.switch is not None and longest > arch.switch:
        raise ValueError(
            f"prompts: expected at most {arch.switch} tokens (beyond that, rotary "
            f"frequencies depend on the prompt length), got {longest}; use "
            "evaluate_naive"
        )
    if prompts.measure == "mean_logit" and arch.logit_cap is not None:
        raise ValueError(
            "scoring: mean_logit is not supported for models with capped logits; use "
            "evaluate_naive"
        )
