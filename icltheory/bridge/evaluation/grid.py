"""Evaluates many pruned models in one pass over a split."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import check_choice, check_nonnegative_int, check_sequence
from icltheory.batching import Progress
from icltheory.bridge.evaluation._run import SplitEvaluator
from icltheory.bridge.evaluation._stacks import pruned_stacks
from icltheory.bridge.evaluation.prompts import tokenize
from icltheory.bridge.evaluation.result import Evaluation, predict
from icltheory.bridge.tasks import LanguageTask
from icltheory.pruning import LowRank, Method
from icltheory.pruning.methods import check_method
from icltheory.pruning.rates import as_strengths

__all__ = ["Grid", "GridChunk"]


class GridChunk(NamedTuple):
    """Scores of some examples at one layer and module.

    Args:
        layer: Number of the pruned layer.
        module: The pruned module.
        examples: Numbers of the examples in the split, ``(b,)``.
        scores: Score of every option at every rate, ``(rates, b, K)``.
    """

    layer: int
    module: str
    examples: np.ndarray
    scores: np.ndarray

    @property
    def predictions(self) -> np.ndarray:
        """Predicted option at every rate, ``(rates, b)``; -1 for NaN."""
        return predict(self.scores)


class Grid:
    r"""A model pruned at every (layer, module, rate) of a grid, over a split of a task.

    The prefix runs once up to the deepest layer, and from each pruned layer on once for
    each rate. A batch of questions runs once up to each pruned layer, and from there
    through one program for all rates. Of |V| questions of q tokens behind a prefix of P
    tokens, with |C| rates at layer l of L, that is

    .. math:: (P + |V|\, q)\, (l + |C|\, (L - l)) \quad \text{instead of} \quad
        |C|\, |V|\, (P + q)\, L

    tokens through a layer. Nothing of a batch outlives it but its scores.

    Args:
        model: The model.
        task: The task.
        layers: Numbers of the layers.
        modules: Modules that are pruned, one at a time.
        rates: Clipping rates, among which may be a :class:`~icltheory.pruning.Rank`; 0
            leaves the original weights.
        split: ``"demonstrations"``, ``"validation"`` or ``"test"``.
        shots: Demonstrations in front; all if ``None``.
        batch_size: Most examples that run together, about so many if packed.
        buckets: Most lengths to which questions are padded if not packed; each
            compiles.
        padding: ``"right"`` or ``"left"``, to which side.
        packed: Whether rows of one length hold several questions, each with its
            options behind it, so that one program serves all.
        method: A :class:`~icltheory.pruning.Method`: ``LowRank``, ``Whitened`` or
            ``Magnitude`` of :mod:`icltheory.pruning`; or of
            :mod:`icltheory.bridge.spectra` ``Cumulative``, by which each rate goes on
            from the one before, as in the published code; ``ActivationAware``, which
            weighs the inputs of a matrix as a text has them; ``LargestEntries`` and
            ``RandomVectors``, with as many parameters as truncation.
        systems: Keeps singular systems: ``systems.of(W)`` is ``(U, s, Vt)``. A
            decomposition each if ``None``.

    Source: Yao et al. (2024), Algorithm 1.
    """

    def __init__(
        self,
        model: Any,
        task: LanguageTask,
        layers: Sequence[int],
        modules: Sequence[str],
        rates: Sequence[Any],
        split: str = "validation",
        shots: int | None = None,
        *,
        batch_size: int = 32,
        buckets: int = 3,
        padding: str = "right",
        packed: bool = True,
        method: Method = LowRank(),
        systems: Any = None,
    ):
        for name, given in (("layers", layers), ("modules", modules), ("rates", rates)):
            check_sequence(name, given)
            if not len(given):
                raise ValueError(f"{name}: expected at least one, got none")
        check_method(method)
        for layer in layers:
            check_nonnegative_int("layer", layer)
        self.rates = as_strengths(rates)
        self.keys = tuple((int(l), m) for l in sorted(set(layers)) for m in modules)
        self._shown = model, task, shots, (batch_size, buckets, padding, packed)
        self._run = run = self._evaluator(split)
        for layer, module in self.keys:
            specs, stacks = pruned_stacks(
                model, layer, module, self.rates, method, systems
            )
            run.add((layer, module), layer, specs, stacks)

    def _evaluator(self, split: str) -> SplitEvaluator:
        model, task, shots, shapes = self._shown
        prompts = tokenize(model, task, split, shots)
        return SplitEvaluator(model, prompts, *shapes, rates=len(self.rates))

    def on(self, split: str, rates: Sequence[Any]) -> "Grid":
        """Returns the same pruned matrices at some rates for another split.

        Args:
            split: ``"demonstrations"``, ``"validation"`` or ``"test"``.
            rates: Which of the rates.

        Returns:
            The grid. No matrix is decomposed again; nor does the prefix run again where
            both splits begin with the same tokens.
        """
        new = object.__new__(Grid)
        new.rates, new.keys = as_strengths(rates), self.keys
        for rate in new.rates:
            check_choice("rates", rate, self.rates)
        places = [self.rates.index(rate) for rate in new.rates]
        new._shown = self._shown
        new._run = new._evaluator(split)
        new._run.take_from(self._run, places)
        return new

    @property
    def labels(self) -> np.ndarray:
        """Index of the correct option of each example."""
        return self._run.prompts.labels

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return len(self.labels)

    def stream(
        self,
        examples: Sequence[int] | np.ndarray | None = None,
        rates: Sequence[int] | None = None,
    ) -> Iterator[GridChunk]:
        """Yields the scores of each batch as soon as they are computed.

        Args:
            examples: Numbers of the examples; all if ``None``. When given, shapes are
                rounded up to powers of two, which other calls share.
            rates: Numbers of the rates, places in ``rates``; all if ``None``.

        Returns:
            One chunk a batch and (layer, module), of the examples that it completes.
        """
        for (layer, module), *found in self._run.stream(examples, rates):
            yield GridChunk(layer, module, *found)

    def evaluations(
        self, progress: Progress | None = None
    ) -> dict[tuple[int, str], tuple[Evaluation, ...]]:
        """Returns evaluations of the whole split, one for each rate.

        Args:
            progress: Called as ``progress(done, total, part)`` after each batch, with
                numbers of examples; see :mod:`icltheory.batching`.

        Returns:
            A tuple for each (layer, module).
        """
        return self._run.evaluations(progress, lambda key: "layer {}, {}".format(*key))
