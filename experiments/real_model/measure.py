"""Asks the model, part by part; what is stored is not asked again."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments._frame.run import Run
from experiments.real_model.subject import Subject
from icltheory.bridge.clipping import clip_module
from icltheory.bridge.implicit_update import (
    implicit_updates,
    layer_streams,
    mlp_input,
    readers,
    update_sizes,
)
from icltheory.bridge.layer_search import layer_choice
from icltheory.bridge.spectra import (
    ActivationAware,
    ConditionNumber,
    LargestEntries,
    RandomVectors,
    condition_numbers,
    input_moments,
)
from icltheory.pruning import module_matrices
from icltheory.strict_json import plain

Case = tuple[str, str, str]
# Factors of the two scalar arms, as many as Algorithm 1 has rates.
FACTORS = {
    "scale": (0.0, 0.5, 0.7, 0.85, 1.15, 1.4, 2.0),
    "temperature": (0.25, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0),
}


@dataclasses.dataclass(frozen=True)
class Scaled:
    """Multiplies the last matrix of a module, or its queries, by a factor a place."""

    arm: str
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """Name of the arm and its factors."""
        return f"{self.arm}-{FACTORS[self.arm]}-{self.rates}"

    @property
    def fresh(self) -> "Scaled":
        """The method itself, which draws nothing."""
        return self

    def cutter(self, W: Any, rank_of: Any, place: tuple[int, str]) -> Callable:
        """Returns a function from a rate, which counts the factors, to a matrix."""
        names = ("W_O", "W_out") if self.arm == "scale" else ("W_Q",)
        factors = dict(zip(self.rates, (1.0, *FACTORS[self.arm]), strict=False))
        return lambda rate: factors[float(rate)] * W if place[1] in names else W


def part(run: Run, name: str, measured: Callable[[], Any]) -> Any:
    """Returns a part of a run that is stored, else measures and stores it."""
    path = run.folder / f"{name}.json"
    if not path.is_file():
        with run.phase(name):
            found = plain(measured())
        run.write_json(path.name, found)
    return json.loads(path.read_text())


def prompts(subject: Subject) -> dict[str, Any]:
    """Chooses the prompt and scoring of each task that is best without pruning."""
    config, found = subject.config, {}
    for name in subject.run.track(config.tasks, "prompts", unit="tasks"):
        rows = []
        for prompt, scoring in subject.prompts(name):
            right = subject.unpruned(
                subject.evaluator((name, prompt, scoring)),
                "validation",
                config.examples,
            )
            rows.append([prompt, scoring, right.mean()])
        best = max(rows, key=lambda row: row[2])  # of equal ones the first
        found[name] = {"rows": rows, "chosen": [name, *best[:2]]}
    return found


def curves(subject: Subject, cases: list[Case]) -> dict[str, Any]:
    """Answers to the test questions behind more and more demonstrations."""
    config, found = subject.config, {}
    for case in subject.run.track(cases, "shots", unit="tasks"):
        most = _most_that_fit(subject, case)
        shots = [most if k == -1 else k for k in config.shots]
        shots = sorted({k for k in shots if k <= most})
        right = [
            [
                subject.unpruned(subject.evaluator(case, k, draw), "test")
                for draw in range(config.draws)
            ]
            for k in shots
        ]
        task = subject.task(*case)
        labels = np.bincount([example.label for example in task.test])
        found[case[0]] = {
            "shots": shots,
            "right": np.array(right, int),  # shots, draws, questions
            "majority": labels.max() / labels.sum(),
            "classes": len(task.labels),
        }
    return found


def _most_that_fit(subject: Subject, case: Case) -> int:
    task, encode = subject.task(*case), subject.model.tokenizer.encode
    longest = max(
        len(encode(task.query(example))) + 40 for example in task.test + task.validation
    )
    most = min(len(task.demonstrations), subject.config.most_shots)
    left = subject.model.context_length - longest
    while most and len(encode(task.prefix(most))) > left:
        most -= 1
    return most


def conditions(subject: Subject) -> list[dict[str, Any]]:
    """Condition numbers of all matrices."""
    rows = []
    for layer in subject.run.track(
        range(subject.model.num_layers), "condition numbers", unit="layers"
    ):
        rows += condition_numbers(subject.model, subject.systems, [layer])
    return [
        {k: v for k, v in row._asdict().items() if k != "singular_values"}
        for row in rows
    ]


def grid(subject: Subject, cases: list[Case]) -> dict[str, Any]:
    """Right validation answers by layer, module and rate (Figures 1 and 2)."""
    config, found = subject.config, {}
    places = [(case, layer) for case in cases for layer in subject.layers]
    evaluators = {case: subject.evaluator(case) for case in cases}
    for case, layer in subject.run.track(places, "grid", unit="layers"):
        evaluator = evaluators[case]
        some = range(min(config.examples, len(evaluator.task.validation)))
        evaluator.evaluate_missing(
            "validation", [layer], config.modules, config.grid_rates, some
        )
        own = found.setdefault(case[0], {m: {} for m in config.modules})
        for module in config.modules:
            right = evaluator.cache.correct(
                "validation", layer, module, config.grid_rates, some
            )
            own[module][str(layer)] = right.astype(int)
    for case in cases:
        right = subject.unpruned(evaluators[case], "validation", config.examples)
        found[case[0]]["unpruned"] = right.astype(int)
    return found


def searches(
    subject: Subject, cases: list[Case], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Algorithm 1 and the arms beside it: choices on validation, one test each."""
    config = subject.config
    wanted = [
        (case, draw, module, arm)
        for case in cases
        for draw in range(config.draws)
        for module in config.modules
        for arm in (config.arms if draw == 0 else config.arms[:1])
        if arm not in ("temperature", "algorithm1_kv") or module == "attn"
    ]
    found = []
    unpruned: dict[Any, dict[str, np.ndarray]] = {}
    for case, draw, module, arm in subject.run.track(wanted, "searches", unit="runs"):
        layer = _layer(config, rows, module, arm, case[0], subject.model.num_layers)
        method = _method(subject, case, draw, layer, module, arm)
        evaluator = subject.evaluator(case, draw=draw, method=method)
        if (case, draw) not in unpruned:
            unclipped = subject.evaluator(case, draw=draw)
            unpruned[case, draw] = {
                split: subject.unpruned(unclipped, split)
                for split in ("validation", "test")
            }
        before = unpruned[case, draw]
        right = evaluator.correct("validation", layer, module, config.rates[1:])
        values, start = right.mean(axis=1), before["validation"].mean()
        place = int(np.argmax(values))
        rate, after = 0.0, before["test"]
        if values[place] > start:
            rate = config.rates[1:][place]
            after = evaluator.correct(
                "test", layer, module, (*config.rates[1:],), places=[place]
            )[0]
        found.append(
            {
                "task": case[0],
                "draw": draw,
                "module": module,
                "arm": arm,
                "layer": layer,
                "validation": [start, *values],
                "chosen": rate,
                "gained": int((after & ~before["test"]).sum()),
                "lost": int((before["test"] & ~after).sum()),
                "before": before["test"].mean(),
                "after": after.mean(),
                "questions": len(after),
            }
        )
    return found


def _layer(config, rows, module, arm, task, num_layers) -> int:
    if arm == "random_layer":
        seed = [config.seed, config.modules.index(module), *task.encode()]
        return int(np.random.default_rng(seed).integers(num_layers))
    known = [ConditionNumber(**row, singular_values=np.empty(0)) for row in rows]
    if arm == "algorithm1_kv":
        module = "W_K,W_V"
    return layer_choice(known, module, config.top_k, "max").deepest


def _method(
    subject: Subject, case: Case, draw: int, layer: int, module: str, arm: str
) -> Any:
    if arm in FACTORS:
        return Scaled(arm, subject.config.rates)
    if arm == "activation":
        task, encode = subject.task(*case, draw), subject.model.tokenizer.encode
        text = encode(task.prefix(subject.shots(case[0])))
        moments = input_moments(subject.model, [text], layers=[layer], module=module)
        return ActivationAware(moments, label=f"{case[0]}-{case[1]}-{draw}")
    if arm == "magnitude":
        return LargestEntries()
    if arm == "random_vectors":
        return RandomVectors(subject.config.seed)
    return "svd"


def together(
    subject: Subject, cases: list[Case], found: dict[str, Any]
) -> list[dict[str, Any]]:
    """One clip chosen on all tasks but one, tested on the one left out."""
    config, rows = subject.config, []
    if len(found) < 2:
        return rows
    places = [
        (layer, module, i)
        for layer in subject.layers
        for module in config.modules
        for i in range(len(config.grid_rates))
    ]
    gains = {
        name: np.array(
            [
                np.mean(own[m][str(l)][i]) - np.mean(own["unpruned"])
                for l, m, i in places
            ]
        )
        for name, own in found.items()
    }
    for case in subject.run.track(cases, "left out", unit="tasks"):
        others = [gains[name] for name in gains if name != case[0]]
        mean = np.mean(others, axis=0)
        layer, module, i = places[int(np.argmax(mean))]
        evaluator = subject.evaluator(case)
        before = subject.unpruned(evaluator, "test")
        after = evaluator.correct("test", layer, module, (config.grid_rates[i],))[0]
        rows.append(
            {
                "left_out": case[0],
                "layer": layer,
                "module": module,
                "rate": config.grid_rates[i],
                "validation_gain": mean.max(),
                "gained": int((after & ~before).sum()),
                "lost": int((before & ~after).sum()),
                "before": before.mean(),
                "after": after.mean(),
                "questions": len(after),
            }
        )
    return rows


def updates(subject: Subject, cases: list[Case]) -> dict[str, Any]:
    """Sizes of the implicit updates by layer and shots, and where a layer is pruned."""
    config, model, found = subject.config, subject.model, {}
    for case in subject.run.track(cases, "implicit updates", unit="tasks"):
        task, encode = subject.task(*case), model.tokenizer.encode
        some = task.validation[: config.update_queries]
        queries = [encode(task.query(example)) for example in some]

        def rows(shots, some=some, task=task, encode=encode):
            front = task.prefix(shots)
            return [encode(front + task.query(example)) for example in some]

        own: dict[str, Any] = {"shots": {}}
        for shots in config.update_shots:
            sizes = implicit_updates(model, rows(shots), queries, batch_size=len(some))
            own["shots"][str(shots)] = np.asarray(sizes.relative)
        own["pruned"] = _pruned_updates(subject, rows(subject.shots(case[0])), queries)
        found[case[0]] = own
    return found


def _pruned_updates(
    subject: Subject, prompts: list[Any], queries: list[Any]
) -> dict[str, dict[str, np.ndarray]]:
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
            for rate in (0.0, *config.grid_rates):
                pruned = clip_module(
                    model,
                    layer,
                    module,
                    rate,
                    at_least_one=True,
                    systems=subject.systems,
                )
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
