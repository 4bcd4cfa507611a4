"""The cached prefix that all prompts share, and the layers from the pruned one on."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from icltheory._typing import PyTree
from icltheory.bridge._arrays import by_rows
from icltheory.bridge.decoder import Decoder
from icltheory.bridge.evaluation import _programs as programs
from icltheory.bridge.evaluation.batches import Answers
from icltheory.bridge.evaluation.prompts import Prompts
from icltheory.bridge.streams import KV, Stream, Tokens, padded_tokens
from icltheory.layered import MatrixSpec


def prefix_tokens(prefix: Sequence[int], limit: int) -> Tokens:
    """Pads a prefix on the left to one of few lengths, so that programs are shared."""
    # Multiples of 32, and from 256 on four lengths between a power of two and the next.
    step = 1 << max(5, len(prefix).bit_length() - 3)
    length = min(-(-len(prefix) // step) * step, limit)
    return padded_tokens([prefix], length, left=True)


class ModelPrograms:
    """The compiled steps of a model with its weights, for one measure."""

    def __init__(self, decoder: Decoder, params: PyTree, prompts: Prompts):
        self.decoder, self.params = decoder, params
        self.measure, self.prefix = prompts.measure, prompts.prefix
        self.ends = programs.ends_for(params, prompts.measure, prompts.label_ids)
        # Other measures need more than the last token of a row.
        self.last_only = prompts.measure == "label_token"

    def embed(self, tokens: Tokens) -> Stream:
        """Returns the stream of rows that follow the prefix."""
        return self._embed(tokens, len(self.prefix))

    def embed_prefix(self) -> Stream | None:
        """Returns the stream of the prefix, padded on the left."""
        if not self.prefix:
            return None
        tokens = prefix_tokens(self.prefix, self.decoder.arch.max_positions)
        return self._embed(tokens, 0)

    def _embed(self, tokens, start):
        table, start = self.params["embed"], np.int32(start)
        tokens = by_rows(tokens, table["tokens"])
        return programs.embed(self.decoder, table, tokens, start)

    def block(self, layer: int, stream: Stream, prefix: KV | None):
        """Applies one unpruned block."""
        weights, decoder = self.params["layers"][layer], self.decoder.of_layer(layer)
        return programs.block(decoder, False, weights, stream, prefix)


class SharedPrefix:
    """The prefix's hidden states at a layer, and keys and values of layers below."""

    def __init__(self, model: ModelPrograms):
        self.model, self.layer = model, 0
        self.stream = model.embed_prefix()
        self.caches: list[KV | None] = []

    def advance(self, layer: int) -> None:
        """Runs the prefix up to the input of ``layer``."""
        for index in range(self.layer, layer):
            cache = None
            if self.stream is not None:
                self.stream, cache = self.model.block(index, self.stream, None)
            self.caches.append(cache)
        self.layer = max(self.layer, layer)


class Branch:
    """The layers from a pruned one on, evaluated at several rates.

    Args:
        model: The model.
        layer: Number of the pruned layer.
        specs: Its pruned matrices, as paths within the layer; none for the whole model.
        matrices: For each of them a stack over the rates.
        prefix: The stream of the prefix that enters the layer.
    """

    def __init__(
        self,
        model: ModelPrograms,
        layer: int,
        specs: tuple[MatrixSpec, ...],
        matrices: tuple[jax.Array, ...],
        prefix: Stream | None,
    ):
        self.model, self.layer, self.specs, self.matrices = (
            model,
            layer,
            specs,
            matrices,
        )
        rates = matrices[0].shape[0] if matrices else 1
        self.before: Any = (np.zeros(rates, np.float32), np.int32(0))
        self.caches: list[KV | None] = [None] * (model.decoder.num_layers - layer)
        if prefix is not None:
            self._fill(prefix)

    def _fill(self, stream: Stream) -> None:
        needed = self.model.measure == "mean_logit"
        stream, self.caches = self._run(stream, self.caches, not needed)
        if needed:
            self.before = programs.prefix_logits(
                self.model.decoder, self.model.ends, stream
            )

    def __call__(self, stream: Stream, answers: Answers) -> jax.Array:
        """Returns the measures of sequences that enter the layer, (R, B S, K or 1)."""
        stream, _ = self._run(stream, self.caches, self.model.last_only)
        way = self.model
        return programs.score(
            way.decoder, way.measure, way.ends, stream, answers, self.before
        )

    def take(self, rates: Sequence[int]) -> "Branch":
        """Returns the branch with some of its rates."""
        chosen, new = np.asarray(rates), object.__new__(Branch)
        new.model, new.layer, new.specs = self.model, self.layer, self.specs
        new.matrices = tuple(stack[chosen] for stack in self.matrices)
        new.before = (self.before[0][chosen], self.before[1])
        shared = not programs.changes_keys(self.specs)
        new.caches = [
            cache
            if cache is None or (number == 0 and shared)
            else cache._replace(k=cache.k[chosen], v=cache.v[chosen])
            for number, cache in enumerate(self.caches)
        ]
        return new

    def _run(self, stream, prefixes, last_only):
        caches, way = [], self.model
        for number, prefix in enumerate(prefixes):
            layer = self.layer + number
            weights, decoder = way.params["layers"][layer], way.decoder.of_layer(layer)
            last = last_only and layer == way.decoder.num_layers - 1
            if number == 0:
                args = (decoder, self.specs, last, weights, self.matrices)
                stream, cache = programs.fan_out(*args, stream, prefix)
            else:
                args = (decoder, last, weights)
                stream, cache = programs.above(*args, stream, prefix)
            caches.append(cache)
        return stream, caches
