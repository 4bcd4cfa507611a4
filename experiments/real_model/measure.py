"""Asks the model, part by part; what is stored is not asked again."""

import dataclasses
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.frame import expect
from experiments.real_model.config import (
    PROMPTS,
    RAREST,
    SCORINGS,
    Config,
    arms_of,
    other_template,
)
from icltheory.bridge import (
    AnswerFile,
    Evaluator,
    LanguageModel,
    choose_layer,
    load_checkpoint,
    load_task,
    prune_model,
)
from icltheory.bridge.evaluation import tokenize
from icltheory.bridge.inputs import (
    implicit_updates,
    input_moments,
    layer_streams,
    mlp_input,
    readers,
    update_sizes,
)
from icltheory.bridge.methods import ActivationAware, LargestEntries, RandomVectors
from icltheory.bridge.model import weights_digest
from icltheory.bridge.spectra import (
    ConditionNumber,
    SingularSystems,
    condition_numbers,
)
from icltheory.bridge.tasks import TASKS, LanguageTask
from icltheory.pruning import Intervention, LowRank, Method, module_matrices

# A rank that rounds to 0 becomes 1.
EXACT = LowRank(at_least_one=True)
# Factors of the two scalar arms, as many as Algorithm 1 has rates.
FACTORS = {
    "scale": (0.0, 0.5, 0.7, 0.85, 1.15, 1.4, 2.0),
    "temperature": (0.25, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0),
}


class Subject:
    """A model, its tasks, the singular systems of its matrices and its answers."""

    def __init__(self, config: Config, run: Any, task_folder: Path | None = None):
        from experiments.real_model.fetch import fetch  # a program of its own

        self.config, self.run, self.task_folder = config, run, task_folder
        checkpoint = config.checkpoint or fetch()
        self.model: LanguageModel = load_checkpoint(checkpoint, config.dtype)
        self.systems = SingularSystems(run.folder / "singular_systems")
        name, digest = Path(self.model.source).name, weights_digest(self.model)
        self.about = {"source": name, "digest": digest}
        self.answers = AnswerFile(run.folder / "answers.sqlite", self.about)

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of the grid."""
        return self.config.layers or tuple(range(self.model.num_layers))

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def task(self, name: str, prompt: str, scoring: str, draw: int = 0) -> LanguageTask:
        """Returns a task with a prompt, ``"paper"`` or ``"other"`` twice by a plus."""
        spec = TASKS[name]
        recipe = spec.recipe("paper")
        classes = len(spec.labels[0][1])
        classes = len(set(recipe.merge)) if recipe.merge else classes
        third = RAREST.get(name, sys.maxsize) // 3
        per_class = min(-(-self.config.most_shots // classes), third)
        split = dataclasses.replace(recipe.split, per_class=per_class, keep=None)
        recipe = dataclasses.replace(recipe, split=split)
        found = load_task(
            dataclasses.replace(spec, recipes=recipe),
            None if self.task_folder is None else Path(self.task_folder, name),
            demonstration_seed=draw,
            reserved=min(per_class * self.config.draws, third),
        )
        query, words = prompt.split("+")
        changes = other_template(name) if query == "other" else {}
        if words == "other":
            changes |= {"words": PROMPTS[name][1], "scored": ()}
        template = dataclasses.replace(found.template, **changes)
        return dataclasses.replace(
            found,
            template=template,
            labels=template.words or found.labels,
            scoring=scoring,
            validation=_some(found.validation, self.config.search_examples),
            test=_some(found.test, self.config.test_examples),
        )

    def prompts(self, name: str) -> list[tuple[str, str]]:
        """All prompts and scorings of a task that can be asked; the paper's first."""
        words = ("paper", "other") if PROMPTS[name][1] else ("paper",)
        prompts = [f"{query}+{word}" for query in ("paper", "other") for word in words]
        found, why = [], ""
        for prompt in prompts:
            for scoring in SCORINGS[TASKS[name].kind]:
                task = self.task(name, prompt, scoring)
                try:
                    tokenize(self.model, task, "validation", self.shots(name))
                except ValueError as error:  # label words that share their first token
                    why = f"{name}, where no prompt can be asked ({error})"
                    continue
                found.append((prompt, scoring))
        expect(bool(found), "tasks", "tasks that this model can answer", why)
        return found

    def shots(self, name: str) -> int:
        """Demonstrations of the paper, which searches use."""
        recipe = TASKS[name].recipe("paper")
        classes = len(set(recipe.merge)) or len(TASKS[name].labels[0][1])
        own = recipe.split.per_class * classes
        return min(recipe.split.keep or own, self.config.most_shots)

    def evaluator(
        self,
        case: Any,
        shots: int | None = None,
        draw: int = 0,
        method: Method = EXACT,
    ) -> Evaluator:
        """Returns what answers a task with a prompt and a scoring, or has answered."""
        task = self.task(*case, draw)
        shots = self.shots(case[0]) if shots is None else shots
        return Evaluator(
            self.model,
            task,
            shots,
            method=method,
            systems=self.systems,
            answers=self.answers,
            batch_size=self.config.batch_size,
        )

    def unpruned(
        self, evaluator: Evaluator, split: str, most: int | None = None
    ) -> np.ndarray:
        """Which of the first examples the model answers correctly as it is."""
        size = len(evaluator.task.examples(split))
        some = range(size if most is None else min(most, size))
        return evaluator.correct(split, [()], some)[0]


def _some(examples: Any, most: int) -> Any:
    if len(examples) <= most:
        return examples
    # In an order in which any first part is spread over the whole split.
    places = np.linspace(0, len(examples) - 1, most).round().astype(int)
    order = np.random.default_rng(0).permutation(most)
    return tuple(examples[places[i]] for i in order)


def cases_of(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Each task with the prompt and the scoring that were chosen."""
    return [tuple(own["chosen"]) for own in found["prompts"].values()]


# --- the parts of a run, each a function of the subject and the parts before it


def prompts(subject: Subject, _: dict[str, Any]) -> dict[str, Any]:
    """Chooses the prompt and scoring of each task that is best without pruning."""
    config, found = subject.config, {}
    for name in subject.run.track(config.tasks, "prompts", unit="tasks"):
        rows = []
        for prompt, scoring in subject.prompts(name):
            evaluator = subject.evaluator((name, prompt, scoring))
            right = subject.unpruned(evaluator, "validation", config.examples)
            rows.append([prompt, scoring, right.mean()])
        best = max(rows, key=lambda row: row[2])  # of equal ones the first
        found[name] = {"rows": rows, "chosen": [name, *best[:2]]}
    return found


def curves(subject: Subject, before: dict[str, Any]) -> dict[str, Any]:
    """Answers to the test questions behind more and more demonstrations."""
    config, found = subject.config, {}
    for case in subject.run.track(cases_of(before), "shots", unit="tasks"):
        most, task = _most_that_fit(subject, case), subject.task(*case)
        shots = [most if k == -1 else k for k in config.shots]
        shots = sorted({k for k in shots if k <= most})
        right = [
            [
                subject.unpruned(subject.evaluator(case, k, draw), "test")
                for draw in range(config.draws)
            ]
            for k in shots
        ]
        labels = np.bincount([example.label for example in task.test])
        found[case[0]] = {
            "shots": shots,
            "right": np.array(right, int),  # shots, draws, questions
            "majority": labels.max() / labels.sum(),
            "classes": len(task.labels),
        }
    return found


def _most_that_fit(subject: Subject, case: Any) -> int:
    task, encode = subject.task(*case), subject.model.tokenizer.encode
    asked = (len(encode(task.query(one))) for one in task.test + task.validation)
    left = subject.model.context_length - (max(asked) + 40)
    most = min(len(task.demonstrations), subject.config.most_shots)
    while most and len(encode(task.prefix(most))) > left:
        most -= 1
    return most


def conditions(subject: Subject, _: dict[str, Any]) -> list[dict[str, Any]]:
    """Condition numbers of all matrices."""
    layers, rows = range(subject.model.num_layers), []
    for layer in subject.run.track(layers, "condition numbers", unit="layers"):
        rows += condition_numbers(subject.model, subject.systems, [layer])
    kept = [name for name in ConditionNumber._fields if name != "singular_values"]
    return [{name: getattr(row, name) for name in kept} for row in rows]


def grid(subject: Subject, before: dict[str, Any]) -> dict[str, Any]:
    """Right validation answers by layer, module and rate (Figures 1 and 2)."""
    config, found, cases = subject.config, {}, cases_of(before)
    places = [(case, layer) for case in cases for layer in subject.layers]
    evaluators = {case: subject.evaluator(case) for case in cases}
    for case, layer in subject.run.track(places, "grid", unit="layers"):
        evaluator = evaluators[case]
        some = range(min(config.examples, len(evaluator.task.validation)))
        rates, own = config.grid_rates, found.setdefault(case[0], {})
        pruned = [f"{layer}:{m}:{rate}" for m in config.modules for rate in rates]
        right = evaluator.correct("validation", pruned, some).astype(int)
        for module, rows in zip(
            config.modules, np.split(right, len(config.modules)), strict=True
        ):
            own.setdefault(module, {})[str(layer)] = rows
    for case in cases:
        right = subject.unpruned(evaluators[case], "validation", config.examples)
        found[case[0]]["unpruned"] = right.astype(int)
    return found


def tested(before: np.ndarray, after: np.ndarray) -> dict[str, Any]:
    """Counts of a paired test of right answers."""
    return {
        "gained": int((after & ~before).sum()),
        "lost": int((before & ~after).sum()),
        "before": before.mean(),
        "after": after.mean(),
        "questions": len(after),
    }


def searches(subject: Subject, before: dict[str, Any]) -> list[dict[str, Any]]:
    """Algorithm 1 and the arms beside it: choices on validation, one test each."""
    config, rows, found = subject.config, before["conditions"], []
    wanted = [
        (case, draw, module, arm)
        for case in cases_of(before)
        for draw in range(config.draws)
        for module in config.modules
        for arm in arms_of(config, module, draw)
    ]
    unpruned: dict[Any, dict[str, np.ndarray]] = {}
    rates = config.rates[1:]
    for case, draw, module, arm in subject.run.track(wanted, "searches", unit="runs"):
        layer = layer_of(config, rows, module, arm, case[0], subject.model.num_layers)
        method = _method(subject, case, draw, layer, module, arm)
        evaluator = subject.evaluator(case, draw=draw, method=method)
        if (case, draw) not in unpruned:
            plain, splits = subject.evaluator(case, draw=draw), ("validation", "test")
            own = {split: subject.unpruned(plain, split) for split in splits}
            unpruned[case, draw] = own
        own = unpruned[case, draw]
        pruned = [f"{layer}:{module}:{rate}" for rate in rates]
        values = evaluator.correct("validation", pruned).mean(axis=1)
        place, start = int(np.argmax(values)), own["validation"].mean()
        rate, after = 0.0, own["test"]
        if values[place] > start:
            rate = rates[place]
            after = evaluator.correct("test", [pruned[place]])[0]
        names = {"task": case[0], "draw": draw, "module": module, "arm": arm}
        chosen = {"layer": layer, "validation": [start, *values], "chosen": rate}
        found.append(names | chosen | tested(own["test"], after))
    return found


def layer_of(
    config: Config, rows: Any, module: str, arm: str, task: str, num_layers: int
) -> int:
    """The layer that a search prunes."""
    if arm == "random_layer":
        seed = [config.seed, config.modules.index(module), *task.encode()]
        return int(np.random.default_rng(seed).integers(num_layers))
    known = [ConditionNumber(**row, singular_values=np.empty(0)) for row in rows]
    module = "W_K,W_V" if arm == "algorithm1_kv" else module
    return choose_layer(known, module, config.top_k, "max").deepest


@dataclasses.dataclass(frozen=True)
class Scaled(Method):
    """Multiplies the last matrix of a module, or its queries, by a factor per place."""

    arm: str
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """Name of the arm and its factors."""
        return f"{self.arm}-{FACTORS[self.arm]}-{self.rates}"

    def cutter(self, W: Any, place: Any = None) -> Callable:
        """Returns a function from a rate, which counts the factors, to a matrix."""
        names = ("W_O", "W_out") if self.arm == "scale" else ("W_Q",)
        factors = dict(zip(self.rates, (1.0, *FACTORS[self.arm]), strict=False))
        return lambda rate: factors[float(rate)] * W if place[1] in names else W


def _method(subject, case, draw, layer, module, arm):
    """How an arm prunes."""
    if arm in FACTORS:
        return Scaled(arm, subject.config.rates)
    if arm == "activation":
        task, encode = subject.task(*case, draw), subject.model.tokenizer.encode
        text = encode(task.prefix(subject.shots(case[0])))
        moments = input_moments(subject.model, [text], layers=[layer], module=module)
        label = f"{case[0]}-{case[1]}-{draw}"
        return ActivationAware(moments, label=label, at_least_one=True)
    if arm == "magnitude":
        return LargestEntries(at_least_one=True)
    seed = subject.config.seed
    random = RandomVectors(seed, at_least_one=True)
    return random if arm == "random_vectors" else EXACT


def together(subject: Subject, before: dict[str, Any]) -> list[dict[str, Any]]:
    """One clip chosen on all tasks but one, tested on the one left out."""
    config, rows, found = subject.config, [], before["grid"]
    cases = cases_of(before) if len(found) > 1 else []
    places = [
        (layer, module, i)
        for layer in subject.layers
        for module in config.modules
        for i in range(len(config.grid_rates))
    ]
    gains = {}
    for name, own in found.items():
        right = [np.mean(own[module][str(layer)][i]) for layer, module, i in places]
        gains[name] = np.array(right) - np.mean(own["unpruned"])
    for case in subject.run.track(cases, "left out", unit="tasks"):
        mean = np.mean([gains[name] for name in gains if name != case[0]], axis=0)
        layer, module, i = places[int(np.argmax(mean))]
        rate, evaluator = config.grid_rates[i], subject.evaluator(case)
        unpruned = subject.unpruned(evaluator, "test")
        after = evaluator.correct("test", [f"{layer}:{module}:{rate}"])[0]
        clip = {"layer": layer, "module": module, "rate": rate}
        own = {"left_out": case[0], **clip, "validation_gain": mean.max()}
        rows.append(own | tested(unpruned, after))
    return rows


def updates(subject: Subject, before: dict[str, Any]) -> dict[str, Any]:
    """Sizes of the implicit updates by layer and shots, and where a layer is pruned."""
    config, model, found = subject.config, subject.model, {}
    encode, cases = model.tokenizer.encode, cases_of(before)
    for case in subject.run.track(cases, "implicit updates", unit="tasks"):
        task, shown = subject.task(*case), {}
        asked = [task.query(one) for one in task.validation[: config.update_queries]]
        queries, size = [encode(query) for query in asked], {"batch_size": len(asked)}
        for shots in (*config.update_shots, subject.shots(case[0])):
            front = task.prefix(shots)
            shown[shots] = [encode(front + query) for query in asked]
        sizes = {
            str(shots): np.asarray(
                implicit_updates(model, shown[shots], queries, **size).relative
            )
            for shots in config.update_shots
        }
        pruned = _pruned_updates(subject, shown[subject.shots(case[0])], queries)
        found[case[0]] = {"shots": sizes, "pruned": pruned}
    return found


def _pruned_updates(subject, prompts, queries) -> dict[str, dict[str, np.ndarray]]:
    """Norms by layer and module, ``(rates, queries)``, where the module is pruned."""
    config, model = subject.config, subject.model
    found: dict[str, dict[str, np.ndarray]] = {}
    both = (layer_streams(model, r, batch_size=len(r)) for r in (prompts, queries))
    for (some, layer, stream, last), (others, _, alone, end) in zip(*both, strict=True):
        if layer not in subject.layers:
            continue
        found[str(layer)] = {}
        back, back_alone = np.argsort(some), np.argsort(others)
        for module in config.modules:
            specs, norms, inputs = module_matrices(model, layer, module), [], ()
            how = {"method": EXACT, "systems": subject.systems}
            for rate in (0.0, *config.grid_rates):
                pruned = prune_model(model, Intervention(layer, module, rate), **how)
                # What enters the MLP does not depend on its own matrices.
                if not inputs or any(spec.group == "attn" for spec in specs):
                    weights = pruned.params["layers"][layer]
                    inputs = (
                        mlp_input(model, layer, weights, stream, last)[back],
                        mlp_input(model, layer, weights, alone, end)[back_alone],
                    )
                norms.append(update_sizes(readers(pruned, layer), *inputs)[0])
            found[str(layer)][module] = np.stack(norms)
    return found


PARTS = (prompts, curves, conditions, grid, searches, together, updates)
