"""Evaluates the examples that are missing from an answer cache and stores them."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from icltheory.batching import Counter, Progress
from icltheory.bridge.answer_cache import AnswerCache, TaskFacts
from icltheory.bridge.evaluation import Grid, GridChunk
from icltheory.bridge.spectra import Exact
from icltheory.bridge.tasks import LanguageTask
from icltheory.pruning import LowRank, Method, Rank
from icltheory.pruning.methods import check_method
from icltheory.pruning.rates import key_of

__all__ = ["CachedEvaluator", "method_name"]

# The default batch size of ``Grid``.
DEFAULT_BATCH = 32


def method_name(method: Method, systems: Any = None) -> str:
    """Returns the name of a pruning method in the key of an answer cache.

    Args:
        method: As :class:`~icltheory.bridge.evaluation.Grid` takes it.
        systems: The store of singular systems that the grid reads, if there is one.

    Returns:
        The name, with what it depends on, such as the seed of a draw. Where the
        store's systems are not exact, their name follows a slash.

    Example:
        >>> from icltheory.bridge.spectra import Cumulative
        >>> method_name(LowRank()), method_name(Cumulative([0, 0.5]))
        ('svd', 'cumulative-i2-s0-[0.5]')

    Source: and, for stores, ``tests/bridge/test_cached_evaluator.py``.
    """
    check_method(method)
    own = getattr(systems, "method", None)
    exact = own is None or isinstance(own, Exact)
    plain = exact or not method.spectral
    return method.name if plain else f"{method.name}/{own.name}"


class CachedEvaluator:
    """Evaluates a model on a task and reads known answers from a cache.

    It gives the same answers as its cache (:meth:`correct`), and evaluates those that
    are missing first. A loop over rates
    (:class:`~icltheory.bridge.spectra.Cumulative`) is applied on the validation split
    alone. On the test set, as in the published code, each rate clips the original
    weights, once and with another draw: the matrices are not those by which the rate
    was chosen.

    Where the device runs out of memory, the batch size is halved, with a warning, and
    the answers that are still missing are evaluated; scores of other batch sizes may
    differ by rounding.

    Args:
        cache: The answers; ``method`` among its fields is the :func:`method_name` of
            how the model is pruned (and of ``systems`` among the options), or is
            absent, which means ``"svd"``.
        model: The model.
        task: The task.
        shots: Demonstrations in front; all if ``None``.
        progress: Called as ``progress(done, total, part)`` after each batch, with
            numbers of answers that were missing; the part is the split and the rates.
            See :mod:`icltheory.batching`.
        **options: Further ones of :class:`~icltheory.bridge.evaluation.Grid`.
    """

    def __init__(
        self,
        cache: AnswerCache,
        model: Any,
        task: LanguageTask,
        shots: int | None = None,
        *,
        progress: Progress | None = None,
        **options: Any,
    ):
        self.progress = progress
        self.cache, self.model, self.task, self.shots = cache, model, task, shots
        self.options = options
        self.method = options.setdefault("method", LowRank())
        kept = cache.fields.get("method", "svd")
        name = method_name(self.method, options.get("systems"))
        if name != kept:
            raise ValueError(
                f"method: expected {kept!r}, as the answers in the cache, got {name!r}"
            )
        self._grid: tuple[Any, Grid | None] = (None, None)

    def evaluate_missing(
        self,
        split: str,
        layers: Sequence[int],
        modules: Sequence[str],
        rates: Sequence[Any],
        examples: Sequence[int] | np.ndarray | None = None,
        places: Sequence[int] | None = None,
    ) -> None:
        """Evaluates the answers that are missing in the cache and stores them.

        Args:
            split: ``"validation"`` or ``"test"``.
            layers: Numbers of the pruned layers.
            modules: Modules that are pruned, one at a time.
            rates: Clipping rates or ranks.
            examples: Numbers of the examples; all if ``None``.
            places: Which of the rates are wanted now; all if ``None``. What is built
                for the others is kept for the next call.
        """
        wanted = (split, layers, modules, rates, examples, places)
        while not self._fits(*wanted):
            self._halve_batches()

    def _fits(self, *wanted: Any) -> bool:
        """Whether the missing answers were evaluated without running out of memory."""
        try:
            self._evaluate(*wanted)
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            at_least = self.options.get("batch_size", DEFAULT_BATCH) <= 1
            if at_least or not _is_out_of_memory(error):
                raise
            return False
        return True

    def _halve_batches(self) -> None:
        """Halves the batch size; answers evaluated so far stay in the cache."""
        size = self.options.get("batch_size", DEFAULT_BATCH)
        self.options["batch_size"] = size // 2
        self._grid = (None, None)
        warnings.warn(
            f"batch_size: out of memory at {size}, going on with {size // 2}",
            UserWarning,
            stacklevel=3,
        )

    def _evaluate(self, split, layers, modules, rates, examples, places) -> None:
        total = self.cache.facts.sizes[split]
        chosen = np.arange(total) if examples is None else np.asarray(examples)
        asked = np.isin(
            np.arange(len(rates)), range(len(rates)) if places is None else places
        )
        parts = list(self._missing(split, layers, modules, rates, chosen, asked))
        missing = sum(
            sum(len(places) * len(numbers) for places, numbers in wanted)
            * (len(some_layers) * len(some_modules))
            for wanted, some_layers, some_modules in parts
        )
        count = Counter(missing, self.progress)
        for wanted, some_layers, some_modules in parts:
            grid = self._grid_of(split, some_layers, some_modules, tuple(rates))
            for places, numbers in wanted:
                whole = len(places) == len(rates) and len(numbers) == total
                chunks = grid.stream() if whole else grid.stream(numbers, places)
                some_rates = [rates[place] for place in places]
                name = f"{split}, {_listed(some_rates)}"
                for batch in _batches(chunks, len(grid.keys)):
                    self.cache.add(split, some_rates, batch, grid.labels)
                    added = sum(len(c.examples) for c in batch) * len(places)
                    count.add(added, name)

    @property
    def facts(self) -> TaskFacts:
        """Name, labels and sizes of the task."""
        return self.cache.facts

    def labels(self, split: str) -> np.ndarray:
        """Index of the correct option of each example, as in the cache."""
        return self.cache.labels(split)

    def accuracy(self, correct: np.ndarray) -> float:
        """Accuracy with the denominator of the task."""
        return self.cache.accuracy(correct)

    def correct(
        self,
        split: str,
        layer: int,
        module: str,
        rates: Sequence[Any],
        examples: Sequence[int] | np.ndarray | None = None,
        places: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Returns which answers are right, after evaluating missing ones.

        The arguments and the result are those of :meth:`AnswerCache.correct`.
        """
        self.evaluate_missing(split, [layer], [module], rates, examples, places)
        return self.cache.correct(split, layer, module, rates, examples, places)

    def _missing(self, split, layers, modules, rates, chosen, asked):
        """Groups missing answers by the layers and modules that lack the same ones."""
        lacking: dict[Any, dict[str, list[int]]] = {}
        for module in modules:
            for layer in layers:
                known = self.cache.known(split, layer, module, rates)[:, chosen]
                pattern = _pattern(asked[:, None] & ~known, chosen)
                if pattern:
                    by_module = lacking.setdefault(pattern, {})
                    by_module.setdefault(module, []).append(layer)
        for pattern, by_module in lacking.items():
            together: dict[tuple[int, ...], list[str]] = {}
            for module, some in by_module.items():
                together.setdefault(tuple(some), []).append(module)
            for some_layers, some_modules in together.items():
                yield pattern, some_layers, tuple(some_modules)

    def _grid_of(self, split, layers, modules, rates) -> Grid:
        """Returns the last grid if it has these rates, else builds a new one."""
        method = self.method
        if split == "test":
            method = method.fresh
        pruned = (layers, modules, method_name(method))
        wanted, last = (split, rates, pruned), self._grid[1]
        if last is None or self._grid[0] != wanted:
            if last is not None and self._grid[0][2] == pruned and _has(last, rates):
                # When Algorithm 1 tests its choice, the matrices are already
                # decomposed.
                last = last.on(split, rates)
            else:
                last, self._grid = None, (None, None)
                last = Grid(
                    self.model,
                    self.task,
                    layers,
                    modules,
                    rates,
                    split,
                    self.shots,
                    **{**self.options, "method": method},
                )
            self._grid = (wanted, last)
        return last


def _has(grid: Grid, rates: Sequence[Any]) -> bool:
    """Whether a grid has all of these rates."""
    return set(map(key_of, rates)) <= set(map(key_of, grid.rates))


def _listed(strengths: Sequence[Any]) -> str:
    ranks = [one for one in strengths if isinstance(one, Rank)]
    rates = [f"{float(one):g}" for one in strengths if not isinstance(one, Rank)]
    parts = [f"rate{'s' * (len(rates) > 1)} {', '.join(rates)}"] if rates else []
    return ", ".join([*parts, *map(str, ranks)])


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _pattern(absent: np.ndarray, chosen: np.ndarray):
    """Groups rates with the examples that are missing for exactly these rates."""
    columns, which = np.unique(absent, axis=1, return_inverse=True)
    return tuple(
        (
            tuple(np.flatnonzero(column).tolist()),
            tuple(chosen[which.ravel() == number].tolist()),
        )
        for number, column in enumerate(columns.T)
        if column.any()
    )


def _batches(chunks: Iterable[GridChunk], size: int) -> Iterator[list[GridChunk]]:
    """Yields the chunks of one batch of examples, one per layer and module."""
    batch: list[GridChunk] = []
    for chunk in chunks:
        batch.append(chunk)
        if len(batch) == size:
            yield batch
            batch = []
