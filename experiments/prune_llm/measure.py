"""Evaluates the answers that are missing in a study."""

import itertools

from experiments._frame.run import Run
from experiments.prune_llm.arms import arm_layer
from experiments.prune_llm.methods import CONDITION, method_of
from experiments.prune_llm.study import Study, systems_of
from experiments.prune_llm.subject import Subject, TaskDraw
from icltheory.batching import Progress
from icltheory.bridge.cached_evaluator import CachedEvaluator
from icltheory.bridge.layer_search import algorithm1


def measure(study: Study, subject: Subject, run: Run) -> int:
    """Fills the answer caches and returns the number of newly evaluated answers."""
    systems, grid, judged = systems_of(run), study.grid_cases, study.judged_cases
    with run.progress("evaluating", len(grid) + len(judged), unit="cases") as activity:
        for case in grid:
            with run.progress(f"grid, {_name(case)}") as inner:
                _evaluate_grid(study, subject, case, systems, inner.follow)
            activity.advance()
        for case in judged:
            with run.progress(f"Algorithm 1, {_name(case)}") as inner:
                for module in study.config.modules:
                    for arm in (CONDITION, *study.config.arms):
                        _judge(study, subject, case, module, arm, systems, inner.follow)
            activity.advance()
    caches = (study.answers, *study.others.values())
    return sum(answers.added for some in caches for answers in some.values())


def _name(case: TaskDraw) -> str:
    return (
        f"{case.task}, {case.shots} demonstrations (seed {case.seed}, order "
        f"{case.order})"
    )


def _evaluate_grid(
    study: Study, subject: Subject, case: TaskDraw, systems, show: Progress
) -> None:
    """Evaluates all layers, modules and rates on validation, some layers at a time."""
    config = study.config
    evaluator = CachedEvaluator(
        study.answers[case],
        subject.model,
        subject.tasks[case],
        case.shots,
        systems=systems,
        progress=show,
        batch_size=config.batch_size,
        at_least_one=config.at_least_one,
    )
    together: dict[tuple[float, ...], list[str]] = {}
    for module in config.modules:
        together.setdefault(study.rates(module), []).append(module)
    for rates, modules in together.items():
        layers = iter(study.layers)
        while some := tuple(itertools.islice(layers, config.layers_at_once)):
            evaluator.evaluate_missing("validation", some, modules, rates)


def _judge(
    study: Study,
    subject: Subject,
    case: TaskDraw,
    module: str,
    arm: str,
    systems,
    show: Progress,
) -> None:
    config = study.config
    layer, task = arm_layer(study, arm, case, module), subject.tasks[case]
    algorithm1(
        subject.model,
        task,
        module,
        study.rates(module),
        config.top_k,
        config.aggregate,
        shots=case.shots,
        records=study.answers_of(arm, case),
        race=config.race,
        cache=systems,
        progress=show,
        seed=config.seed,
        level=config.level,
        layer=layer,
        batch_size=config.batch_size,
        at_least_one=config.at_least_one,
        method=method_of(config, arm, subject.model, task, layer, module),
    )
