"""Evaluates one data split at several layers and rates with one cached prefix."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from icltheory.batching import Counter, Progress
from icltheory.bridge._arrays import replicated
from icltheory.bridge.evaluation._branches import Branch, ModelPrograms, SharedPrefix
from icltheory.bridge.evaluation.batches import Batches, most_pairs
from icltheory.bridge.evaluation.packing import PackedBatches
from icltheory.bridge.evaluation.prompts import Prompts
from icltheory.bridge.evaluation.result import Evaluation, evaluation_of
from icltheory.bridge.model import check_weights


class SplitEvaluator:
    """Evaluates one data split and shares the prefix's hidden states across rates."""

    def __init__(
        self,
        model: Any,
        prompts: Prompts,
        batch_size: int,
        buckets: int,
        padding: str,
        packed: bool,
        rates: int = 1,
    ):
        limit, width = model.context_length, model.arch.width
        pairs = most_pairs(model, rates)
        self.model, self.prompts = model, prompts
        self._weights_are_known = False
        self.batches = self.apart = Batches(
            prompts, limit, batch_size, buckets, padding, pairs
        )
        if packed:
            self.batches = PackedBatches(prompts, width, batch_size, padding, pairs)
        _check_turns(model.decoder.arch.rotary, prompts)
        _check_scoring(model.decoder.arch, prompts)
        self.programs = ModelPrograms(model.decoder, model.params, prompts)
        self.prefix_cache = SharedPrefix(self.programs)
        self.branches: dict[Any, Branch] = {}
        self.reference: SplitEvaluator | None = None
        if prompts.reference is not None:
            few = prompts.reference
            self.reference = SplitEvaluator(
                model, few, batch_size, 1, padding, packed, rates
            )
        self._references: dict[Any, np.ndarray] = {}
        self._chosen: tuple[Any, Mapping[Any, Branch]] = (None, self.branches)

    def add(self, key: Any, layer: int, specs: Any = (), stacks: Any = ()) -> None:
        """Adds a branch at a layer that is not below the last added one."""
        self.prefix_cache.advance(layer)
        branch = Branch(self.programs, layer, specs, stacks, self.prefix_cache.stream)
        self.branches[key] = branch
        self._num_rates, self._references = len(stacks[0]) if stacks else 1, {}
        if self.reference is not None:
            self.reference.add(key, layer, specs, stacks)

    def take_from(self, other: "SplitEvaluator", rates: list[int]) -> None:
        """Takes all branches of another split at some of the rates.

        Where both splits begin with the same tokens, the hidden states of the prefix
        are taken as well.
        """
        if not self._begins_as(other):
            for key, old in other.branches.items():
                stacks = tuple(stack[np.array(rates)] for stack in old.matrices)
                self.add(key, old.layer, old.specs, stacks)
            return
        self.programs, self.prefix_cache = other.programs, other.prefix_cache
        self.branches = {key: old.take(rates) for key, old in other.branches.items()}
        self._num_rates, self._references = len(rates), {}
        self._chosen = (None, self.branches)
        if self.reference is not None and other.reference is not None:
            self.reference.take_from(other.reference, rates)

    def _begins_as(self, other: "SplitEvaluator") -> bool:
        mine, theirs = self.prompts, other.prompts
        return (mine.prefix, mine.label_ids) == (theirs.prefix, theirs.label_ids)

    def stream(self, examples=None, rates=None) -> Iterator[tuple]:
        """Yields the scores batch by batch, with one batch computed ahead."""
        waiting, branches, kept = [], self._with(rates), {}
        for batch in self.batches(examples):
            running = [
                (key, batch, scores) for key, scores in self._scores(batch, branches)
            ]
            yield from self._fetch(waiting, rates, branches, kept)
            waiting = running
        yield from self._fetch(waiting, rates, branches, kept)

    def evaluations(
        self, progress: Progress | None = None, name: Callable[[Any], str] = str
    ) -> dict[Any, tuple[Evaluation, ...]]:
        """Returns the evaluations at every rate of every branch."""
        p = self.prompts
        return {
            key: tuple(evaluation_of(s, p.labels, p.denominator) for s in found)
            for key, found in self._gathered(progress, name).items()
        }

    def _gathered(
        self, progress: Progress | None = None, name: Callable[[Any], str] = str
    ) -> dict[Any, np.ndarray]:
        """Returns the scores of all examples at every rate and branch, (R, n, K)."""
        p, scores = self.prompts, {}
        count = Counter(p.num_examples * len(self.branches), progress)
        for key, examples, found in self.stream():
            count.add(len(examples), name(key))
            shape = (len(found), p.num_examples, p.num_options)
            scores.setdefault(key, np.empty(shape, found.dtype))[:, examples] = found
        return scores

    def _scores(self, batch, branches):
        stream, layer = self.programs.embed(batch.tokens), 0
        for key, branch in branches.items():
            for index in range(layer, branch.layer):
                cache = self.prefix_cache.caches[index]
                stream, _ = self.programs.block(index, stream, cache)
            layer = branch.layer
            yield key, branch(stream, batch.answers)

    def _fetch(self, running, rates, branches, kept):
        for key, batch, measures in running:
            examples = batch.examples
            measures = self._of_examples(measures, batch, rates, kept, key)
            if not len(examples):
                continue
            own = self._reference_measures(key, rates)
            wrong = np.isnan(measures).any(axis=(0, 2))
            if wrong.any() and not self._weights_are_known:
                check_weights(self.model, tokens=False)
                self._weights_are_known = True
            if wrong.any() and batch.tokens.ends is not None:
                # One sequence of a row may have made all others NaN, since 0 times NaN
                # is NaN.
                found = self._alone(key, examples[wrong], rates, branches)
                measures[:, wrong] = found
            yield key, examples, self.prompts.scores(measures, examples, own)

    def _of_examples(self, measures, batch, rates, kept, key):
        """Returns measures (R, n, K) of the examples that a batch completes.

        ``kept`` has those of all sequences until the other options are there.
        """
        count, p = None if rates is None else len(rates), self.prompts
        found = np.asarray(replicated(measures))[:count, batch.places]
        if key not in kept:
            shape = (len(found), len(p.rows), found.shape[2])
            kept[key] = np.empty(shape, found.dtype)
        kept[key][:, batch.sequences] = found
        whole = kept[key].reshape(len(found), p.num_examples, p.num_options)
        return whole[:, batch.examples]

    def _alone(self, key, examples, rates, branches):
        """Returns measures of examples that each have a row of their own."""
        found: dict[int, np.ndarray] = {}
        kept: dict[Any, np.ndarray] = {}
        for batch in self.apart(examples):
            ((_, measures),) = self._scores(batch, {key: branches[key]})
            measures = self._of_examples(measures, batch, rates, kept, key)
            by_example = zip(
                batch.examples.tolist(), measures.swapaxes(0, 1), strict=True
            )
            found.update(by_example)
        return np.stack([found[number] for number in examples.tolist()], axis=1)

    def _reference_measures(self, key, rates):
        """Returns measures of the reference prompts, which are evaluated once."""
        if self.reference is None:
            return None
        if not self._references:
            self._references = self.reference._gathered()
        found = self._references[key]
        return found if rates is None else found[np.asarray(rates)]

    def _with(self, rates):
        """Returns the branches at some rates, padded to a power of two."""
        if rates is None or tuple(rates) == tuple(range(self._num_rates)):
            return self.branches
        full = 1 << (len(rates) - 1).bit_length()
        wanted = (*rates, *[rates[0]] * (full - len(rates)))
        if self._chosen[0] != wanted:
            taken = {key: branch.take(wanted) for key, branch in self.branches.items()}
            self._chosen = (wanted, taken)
        return self._chosen[1]


def _check_turns(rotary, prompts):
    """Raises if rotary frequencies would depend on a batch's longest row."""
    longest = len(prompts.prefix) + max(len(row) for row in prompts.rows)
    if rotary is not None and rotary.switch is not None and longest > rotary.switch:
        raise ValueError(
            f"prompts: expected at most {rotary.switch} tokens (beyond that, rotary "
            f"frequencies depend on the prompt length), got {longest}; use "
            "evaluate_naive"
        )


def _check_scoring(arch, prompts):
    """Raises if the mean of all logits is not the logit of the head's mean row."""
    if prompts.measure == "mean_logit" and arch.logit_cap is not None:
        raise ValueError(
            "scoring: mean_logit is not supported for models with capped logits; use "
            "evaluate_naive"
        )
