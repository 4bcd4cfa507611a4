"""Answers of a model to a task, unpruned and pruned in many ways."""

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from icltheory._checks import check_positive_int, check_sequence, wrong
from icltheory.batching import Counter, Progress
from icltheory.bridge.answers import Answer, AnswerFile
from icltheory.bridge.evaluation._split import SplitEvaluator
from icltheory.bridge.evaluation.prompts import Prompts, tokenize
from icltheory.bridge.evaluation.result import (
    Evaluation,
    denominator_of,
    evaluation_of_task,
)
from icltheory.bridge.model import LanguageModel, weights_digest
from icltheory.bridge.pruning import prepared, prune_model, pruned_stacks
from icltheory.bridge.spectra import Exact
from icltheory.bridge.tasks import LanguageTask
from icltheory.bridge.tasks.scorings import SCORINGS, reference_task
from icltheory.layered import get_matrix
from icltheory.pruning import Intervention, LowRank, Method, module_matrices
from icltheory.pruning.methods import check_method, kept_table

Candidate = Intervention | str | Sequence[Intervention | str]
Composition = tuple[Intervention, ...]

# Most bytes of pruned matrices that are held together, unless one module has more.
_MOST_BYTES = 2**31


class Evaluator:
    r"""A model's answers to a task, unpruned and pruned, each computed once.

    Models are named by what is pruned: ``()`` is the unpruned model, ``"26:mlp:0.9"``
    one intervention, ``"26:mlp:0.9 3:W_Q:rank=8"`` or a list several. A rate of 0
    changes nothing. The demonstrations run once and are kept as keys and values, what
    lies below a pruned layer is shared, and all strengths of one module are one
    program.

    A method that goes on from rate to rate
    (:class:`~icltheory.bridge.methods.Cumulative`) does so on the validation split
    alone: on the test set, as in the published code, each rate prunes the original
    weights, once and with another draw.

    Where the device runs out of memory, the batch size is halved, with a warning, and
    the answers that are still missing are computed; scores of other batch sizes may
    differ by rounding.

    Args:
        shots: Demonstrations in front; all if ``None``.
        method: How matrices are pruned, a :class:`~icltheory.pruning.Method`.
        systems: Keeps singular systems: ``systems.of(W)`` is ``(U, s, Vt)``. A
            decomposition each if ``None``.
        answers: Where answers are read and stored: a file, made if absent, which is of
            these weights. In memory if ``None``. Those of other prompts, methods and
            approximate singular systems are kept apart.
        batch_size: About how many examples run together.
        progress: Called as ``progress(done, total, part)`` after each batch, with
            numbers of answers that were missing; see :mod:`icltheory.batching`.

    Example:
        >>> model = load_checkpoint("EleutherAI/gpt-j-6b", "bfloat16")  # doctest: +SKIP
        >>> task = load_task("sst2", path="folder")  # doctest: +SKIP
        >>> evaluator = Evaluator(model, task, answers="a.sqlite")  # doctest: +SKIP
        >>> evaluator.evaluate("test", [(), "26:mlp:0.9"])  # doctest: +SKIP

    Source: Yao et al. (2024), Algorithm 1 and section 4.
    """

    def __init__(
        self,
        model: LanguageModel,
        task: LanguageTask,
        shots: int | None = None,
        *,
        method: Method = LowRank(),
        systems: Any = None,
        answers: AnswerFile | str | os.PathLike | None = None,
        batch_size: int = 32,
        progress: Progress | None = None,
    ):
        if not isinstance(model, LanguageModel):
            raise wrong("model", "a LanguageModel", model)
        if not isinstance(task, LanguageTask):
            raise wrong("task", "a LanguageTask", task)
        check_method(method)
        check_positive_int("batch_size", batch_size)
        self.model, self.task, self.shots = model, task, shots
        self.method, self.systems = method, systems
        self.batch_size, self.progress = batch_size, progress
        shown = task.shown(shots)
        self.key = {"task": task.name, "digest": digest_of(task), "shots": shown}
        self.key["method"] = method_name(method, systems)
        if not isinstance(answers, AnswerFile):
            about = {"checkpoint": model.source}
            if answers is not None:
                about["weights"] = weights_digest(model)
            answers = AnswerFile(answers, about)
        self.answers = answers
        self._prompts: dict[str, Prompts] = {}
        self._read: dict[Any, Composition] = {}
        self._cutters: dict[Any, Any] = {}
        self._combined: dict[str, tuple[Evaluator, Evaluator, np.ndarray]] = {}

    def scores(
        self, split: str, models: Sequence[Candidate] = ((),), examples: Any = None
    ) -> np.ndarray:
        """Score of every option, ``(models, examples, options)``.

        A model is what is pruned in it, ``()`` for nothing; all examples by default.
        """
        check_sequence("models", models)
        wanted = [self.read(one) for one in models]
        chosen = self._chosen(split, examples)
        combine = SCORINGS[self.task.scoring].combine
        if combine is not None:
            own, references, numbers = self._derived(split)
            measures = references.scores("validation", wanted)[:, numbers[chosen]]
            return combine(own.scores(split, wanted, chosen), measures)
        while todo := self._missing(split, wanted, chosen):
            try:
                self._compute(split, todo)
            except (MemoryError, jax.errors.JaxRuntimeError) as error:
                full = "RESOURCE_EXHAUSTED" in str(error)
                if self.batch_size == 1 or not (full or isinstance(error, MemoryError)):
                    raise
                size, self.batch_size = self.batch_size, self.batch_size // 2
                said = f"out of memory at {size}, going on with {self.batch_size}"
                warnings.warn(f"batch_size: {said}", UserWarning, stacklevel=2)
        return np.stack([self._stored(split, one)[0][chosen] for one in wanted])

    def correct(
        self, split: str, models: Sequence[Candidate] = ((),), examples: Any = None
    ) -> np.ndarray:
        """Which answers are right, ``(models, examples)``; one with NaN is wrong.

        The arguments are those of :meth:`scores`. In the profile ``"authors_code"`` a
        tie of label tokens is wrong, as in the authors' strict comparisons.
        """
        rows = self.evaluate(split, models, examples)
        for one, row in zip(models, rows, strict=True):
            if not self.read(one) and row.num_nan == row.num_examples > 0:
                raise ValueError(
                    "scores: expected numbers of the unpruned model, got NaN for all "
                    f"{row.num_nan} examples of {self.task.name} {split}; is the range "
                    "of the dtype too small?"
                )
        return np.stack([row.correct for row in rows])

    def evaluate(
        self, split: str, models: Sequence[Candidate] = ((),), examples: Any = None
    ) -> list[Evaluation]:
        """An evaluation for each model; the arguments are those of :meth:`scores`."""
        rows = self.scores(split, models, examples)
        chosen = self._chosen(split, examples)
        return [evaluation_of_task(self.task, split, row, chosen) for row in rows]

    def accuracy(self, correct: np.ndarray) -> float:
        """Accuracy with the denominator of the task, of which answers are right."""
        total = denominator_of(len(correct), self.task.denominator)
        return float(correct.sum() / total)

    def read(self, model: Candidate) -> Composition:
        """The interventions of a model; raises for those that do not fit it."""
        known: Any = (model,) if isinstance(model, Intervention | str) else tuple(model)
        if known not in self._read:
            own, read = prepared(self.model, model if isinstance(model, str) else known)
            for one in read:
                kept_table(self.method, own.params, one.specs(own), [one.strength])
            self._read[known] = tuple(one for one in read if one.strength != 0)
        return self._read[known]

    def _derived(self, split: str) -> tuple["Evaluator", "Evaluator", np.ndarray]:
        """Who measures the options, and the reference prompts with their numbers."""
        if split not in self._combined:
            task, numbers = reference_task(self.task, split, self.shots)
            method = self.method.fresh if split == "test" else self.method
            plain = dataclasses.replace(self.task, scoring=task.scoring)
            how: dict[str, Any] = {"systems": self.systems, "answers": self.answers}
            how |= {"batch_size": self.batch_size, "progress": self.progress}
            own = Evaluator(self.model, plain, self.shots, method=self.method, **how)
            other = Evaluator(self.model, task, method=method, **how)
            own._cutters = other._cutters = self._cutters
            self._combined[split] = own, other, numbers
        return self._combined[split]

    def _chosen(self, split: str, examples: Any) -> np.ndarray:
        """Numbers of examples, all unless given."""
        total = len(self.task.examples(split))
        if not total:
            raise ValueError(f"{self.task.name} {split}: expected examples, got none")
        chosen = np.arange(total) if examples is None else np.asarray(examples)
        whole = chosen.ndim == 1 and (chosen.dtype.kind in "iu" or not chosen.size)
        if not whole or ((chosen < 0) | (chosen >= total)).any():
            expected = f"whole numbers from 0 to {total - 1} in a sequence"
            raise wrong("examples", expected, examples)
        return chosen.astype(int)

    def _stored(self, split: str, one: Composition) -> tuple[np.ndarray, np.ndarray]:
        """Scores of all examples, and which of them are stored."""
        examples = self.task.examples(split)
        scores = np.full((len(examples), len(self.task.options(examples[0]))), np.nan)
        known = np.zeros(len(examples), bool)
        for answer in self.answers.of(self.key, split, text_of(one)):
            scores[answer.example], known[answer.example] = answer.scores, True
        return scores, known

    def _missing(self, split, wanted, chosen) -> dict[Composition, np.ndarray]:
        absent = {one: chosen[~self._stored(split, one)[1][chosen]] for one in wanted}
        return {one: numbers for one, numbers in absent.items() if len(numbers)}

    def _compute(self, split: str, todo: dict[Composition, np.ndarray]) -> None:
        """Computes and stores answers; compositions that differ in the last share."""
        count = Counter(sum(map(len, todo.values())), self.progress)
        bases: dict[Composition, list[Composition]] = {}
        for one in todo:
            inside = bool(one) and one[-1].layer is not None
            bases.setdefault(one[:-1] if inside else one, []).append(one)
        method = self.method.fresh if split == "test" else self.method
        if split not in self._prompts:
            self._prompts[split] = tokenize(self.model, self.task, split, self.shots)
        prompts = self._prompts[split]
        for base, models in bases.items():
            how: dict[str, Any] = {"method": method, "systems": self.systems}
            model = prune_model(self.model, base, **how) if base else self.model
            parts = list(_parts(model, base, models))
            most = max(len(ones) for part in parts for ones in part.values())
            run = SplitEvaluator(model, prompts, self.batch_size, most)
            for part in parts:
                self._add(run, part, base, method)
                told = f"{split}, {text_of(base)}" if base else split
                self._answer(run, split, told, part, todo, count)
                run.branches.clear()

    def _answer(self, run, split, told, part, todo, count) -> None:
        """Stores the answers of a part, batch by batch for all of its models."""
        missing = [todo[one] for ones in part.values() for one in ones]
        some, labels = np.unique(np.concatenate(missing)), run.prompts.labels
        whole, batch = len(some) == len(labels), list[Answer]()
        stream = run.stream(None if whole else some)
        for number, (place, examples, scores) in enumerate(stream, 1):
            batch += [
                Answer(split, text_of(one), i, int(labels[i]), row)
                for one, rows in zip(part[place], scores, strict=True)
                for i, row in zip(examples.tolist(), rows, strict=True)
            ]
            if number % len(part) == 0:
                self.answers.add(self.key, batch)
                batch.clear()
            asked = sum(int(np.isin(todo[one], examples).sum()) for one in part[place])
            plain = "" if "," in told else ", unpruned"
            name = f", {place[1]} of layer {place[0]}" if place else plain
            count.add(asked, told + name)

    def _add(self, run, part, base, method) -> None:
        """Adds a branch for each layer and module of a part."""
        if None in part:
            run.add(None, 0)
            return
        if len(part) > 1:
            self._cutters.clear()
        for place, ones in part.items():
            key = (text_of(base), method.name, *place)
            # The decompositions of a single module are kept: a search tests its choice.
            if len(part) == 1 and key not in self._cutters:
                self._cutters.clear()
                self._cutters[key] = {}
            strengths = [0 if one == base else one[-1].strength for one in ones]
            how = method, self.systems, self._cutters.get(key, {})
            run.add(place, place[0], *pruned_stacks(run.model, place, strengths, *how))


def evaluate(
    model: LanguageModel,
    task: LanguageTask,
    split: str = "validation",
    shots: int | None = None,
    *,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Evaluation:
    r"""Evaluates a model on every example of a split.

    With label tokens the score of label k is its logit behind the prompt. Other
    scorings begin with the log-likelihood of option k,

    .. math:: \log p(o_k \mid \text{prompt}) = \sum_{t} \log p(o_{k,t} \mid
        \text{prompt}, o_{k, <t})

    over its tokens, which :data:`icltheory.bridge.tasks.SCORINGS` divides by a length
    or combines with that behind reference prompts. With the mean logit the score is the
    mean of all logits over the whole vocabulary at all tokens of prompt and option.

    The options are those of :class:`Evaluator`, which has pruned models too.

    Source: Yao et al. (2024), section 4.
    """
    how = {"batch_size": batch_size, "progress": progress}
    return Evaluator(model, task, shots, **how).evaluate(split)[0]


def digest_of(task: LanguageTask) -> str:
    """Digest of all texts and labels of a task; those of two draws differ."""
    text = repr(dataclasses.replace(task, sources=()))
    return hashlib.sha256(text.encode()).hexdigest()


def method_name(method: Method, systems: Any = None) -> str:
    """Name of a pruning method among stored answers, with what it depends on.

    Where the singular systems of a store are not exact, their name follows a slash.

    Example:
        >>> from icltheory.bridge.methods import Cumulative
        >>> method_name(LowRank()), method_name(Cumulative([0, 0.5]))
        ('svd', 'cumulative-i2-s0-[0.5]')
    """
    check_method(method)
    own = getattr(systems, "method", None)
    exact = own is None or isinstance(own, Exact)
    return method.name if exact or not method.spectral else f"{method.name}/{own.name}"


def text_of(composition: Composition) -> str:
    """Text of a composition, which does not depend on its order; ``""`` for none."""
    return " ".join(sorted(map(str, composition)))


def _parts(model, base, models) -> Iterator[dict[Any, list[Composition]]]:
    """Models by layer and module, whose pruned matrices are held together, by depth.

    The base itself is one of those at the deepest place, whose programs it shares, with
    the strength 0; alone it has the place None.
    """
    groups: dict[Any, list[Composition]] = {}
    for one in models:
        if one != base:
            groups.setdefault((one[-1].layer, one[-1].module), []).append(one)
    if not groups:
        yield {None: [base]}
        return
    if base in models:
        groups[max(groups)].append(base)
    part: dict[Any, list[Composition]] = {}
    held = 0
    for place, ones in sorted(groups.items(), key=lambda item: item[0][0]):
        specs = module_matrices(model, *place)
        size = len(ones) * sum(get_matrix(model.params, s).nbytes for s in specs)
        if held and held + size > _MOST_BYTES:
            yield part
            part, held = {}, 0
        part[place] = ones
        held += size
    yield part
