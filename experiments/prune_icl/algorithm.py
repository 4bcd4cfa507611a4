"""Algorithm 1 and an exhaustive search, evaluated on held-out prompts."""

import dataclasses

import numpy as np

from experiments.prune_icl.config import Config
from experiments.prune_icl.measure import errors_of
from experiments.prune_icl.subjects import PrunedSubject, Questions
from icltheory import pruning
from icltheory.statistics import Estimate

_FACTORS = np.linspace(0, 1.2, 61)


@dataclasses.dataclass(frozen=True)
class ChosenPruning:
    """A chosen layer, module and rate, with its validation and test errors.

    Attributes:
        model: The subject's name.
        seed: Seed of its training.
        condition: Which prompts.
        rule: ``"Algorithm 1, attn"`` and so on; ``"exhaustive"``; ``"scaled answer"``,
            the control that prunes nothing and multiplies all answers by one number;
            ``"beyond scaling"``, the best of both against scaling alone.
        what: What was chosen, ``"unpruned"`` if nothing improved on validation.
        validation: Relative change of the error on the prompts of the choice.
        test: Relative change on the test prompts.
        low: Lower end of its interval.
        high: Upper end of its interval.
        p_better: One-sided p-value of "not better on test".
    """

    model: str
    seed: int
    condition: str
    rule: str
    what: str
    validation: float
    test: float
    low: float
    high: float
    p_better: float


def condition_numbers(
    subject: PrunedSubject, seed: int, module: str = "all"
) -> list[list[float]]:
    """Condition numbers of the matrices of a module, one row per layer."""
    params = subject.params[seed]
    spectra = pruning.module_spectra(subject.model, params, module=module)
    return pruning.by_layer(spectra, "condition_number")


def choices(
    subject: PrunedSubject,
    config: Config,
    asked: Questions,
    answers: np.ndarray,
    condition: str,
    seed: int,
) -> list[ChosenPruning]:
    """Choices by Algorithm 1 for each module, by exhaustive search, and two controls.

    Args:
        subject: The model.
        config: Sizes and rules.
        asked: The prompts.
        answers: Answers of one seed at the main shots, (layers, modules, rates,
            prompts).
        condition: Which prompts.
        seed: Place of the seed.
    """
    parts = tuple(asked.parts[condition, part] for part in ("validation", "test"))
    targets = np.asarray(asked.targets[:, -1])

    def errors_at(answers, part=slice(None)):
        numbers = subject.recipe.dim, config.error_cap
        return errors_of(answers[..., part], targets[part], *numbers)

    search = errors_at(answers, parts[0]).mean(axis=-1)
    unpruned, found = errors_at(answers[0, 0, 0]), {}
    for rule, at in _searched(subject, config, search, seed).items():
        found[rule] = _named(subject, *at), unpruned, errors_at(answers[at])

    scaled = np.stack(
        [errors_at(f * answers, parts[0]).mean(axis=-1) for f in _FACTORS]
    )
    factor = _FACTORS[int(np.argmin(scaled[:, 0, 0, 0]))]
    control = errors_at(factor * answers[0, 0, 0])
    found["scaled answer"] = f"x {factor:.2f}", unpruned, control
    best = np.unravel_index(np.argmin(scaled), scaled.shape)
    at = int(best[1]), int(best[2]), int(best[3])
    both = errors_at(_FACTORS[best[0]] * answers[at])
    what = f"{_named(subject, *at)} x {_FACTORS[best[0]]:.2f}"
    found["beyond scaling"] = what, control, both
    return [
        ChosenPruning(
            subject.name,
            subject.recipe.seeds[seed],
            condition,
            rule,
            what,
            **_judge(config, before, after, *parts),
        )
        for rule, (what, before, after) in found.items()
    ]


def _searched(subject, config, search, seed) -> dict[str, tuple[int, int, int]]:
    """Layer, module and rate chosen by validation errors ``search``, for each rule."""
    found = {}
    for place, module in enumerate(subject.modules):
        if module == "all" and len(subject.modules) > 1:
            continue  # Algorithm 1 prunes one kind of module
        scores = condition_numbers(subject, seed, module)
        layer = pruning.choose_layers(
            scores, config.top_k, aggregate=config.aggregate
        ).deepest
        rate = pruning.choose_rate(
            search[layer, place], subject.rates, search[0, 0, 0], maximize=False
        )
        found[f"Algorithm 1, {module}"] = (layer, place, rate.index or 0)
    best = np.unravel_index(np.argmin(search), search.shape)
    return found | {"exhaustive": (int(best[0]), int(best[1]), int(best[2]))}


def _named(subject: PrunedSubject, layer: int, module: int, rate: int) -> str:
    if rate == 0:
        return "unpruned"
    return f"{subject.modules[module]} {layer} rank {subject.ranks[rate]}"


def _judge(config, before, after, validation, test) -> dict[str, float]:
    """Relative changes of the error on the validation and test prompts."""

    def change(part):
        scale = before[part].mean(dtype=np.float64)
        difference = (after[part] - before[part]) / scale
        return Estimate.of(np.asarray(difference))

    judged = change(test)
    low, high = judged.interval(config.level)
    return {
        "validation": float(change(validation).mean),
        "test": float(judged.mean),
        "low": float(low),
        "high": float(high),
        "p_better": float(judged.p_value("less")),
    }
