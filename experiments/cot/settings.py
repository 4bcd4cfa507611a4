"""The tasks on which the models are evaluated."""

from typing import NamedTuple

import numpy as np

from experiments.cot.config import Config
from icltheory import chain_of_thought as cot


class ReasoningSetting(NamedTuple):
    """A task with its share of relevant examples.

    Attributes:
        group: The sweep or comparison that it belongs to.
        value: What is varied in it, or the name of the task.
        steps: Transition matrices, (K, M', M').
        fraction: alpha'.
    """

    group: str
    value: float | str
    steps: np.ndarray
    fraction: float


FRACTION, TAU, RHO, EVEN_FRACTION, EVEN_TAU = (
    "alpha'",
    "tau",
    "rho",
    "alpha', even errors",
    "tau, even errors",
)
SLIDE, POPULAR, FAITHFUL = "slide", "popular answer", "right with .8"
_EVEN_PROBABILITY = 0.8


def sweeps(config: Config) -> list[ReasoningSetting]:
    """Settings of Figures 17 and 18, and those with reference values."""
    K, M, alpha = config.chain_steps, config.states, config.chain_fraction

    def contested(tau, rho):
        return np.asarray(cot.contested_transitions(M, K, tau, rho))

    def even(tau):
        first = tau ** (1 / K)
        return contested(tau, 1 - (1 - first) / (M - 1) / first)

    base = contested(config.tau_of_rhos, config.rhos[0])
    found = [ReasoningSetting(FRACTION, a, base, a) for a in config.fractions]
    found += [
        ReasoningSetting(TAU, tau, contested(tau, config.rho_of_taus), alpha)
        for tau in config.taus
    ]
    found += [
        ReasoningSetting(RHO, rho, contested(config.tau_of_rhos, rho), alpha)
        for rho in config.rhos
    ]
    whole = even(_EVEN_PROBABILITY**K)
    found += [ReasoningSetting(EVEN_FRACTION, a, whole, a) for a in config.fractions]
    return found + [
        ReasoningSetting(EVEN_TAU, tau, even(tau), alpha) for tau in config.taus
    ]


def tasks() -> dict[str, np.ndarray]:
    """Tasks of two steps: Condition 1 fails for one input, for all, for none."""
    return {
        SLIDE: np.asarray(cot.slide_transitions()),
        POPULAR: np.asarray(cot.popular_answer_transitions()),
        FAITHFUL: np.asarray(cot.faithful_transitions()),
    }


def comparisons(config: Config) -> list[ReasoningSetting]:
    """Settings of Figure 19."""
    return [
        ReasoningSetting("comparison", name, steps, fraction)
        for name, steps in tasks().items()
        for fraction in config.compare_fractions
    ]
