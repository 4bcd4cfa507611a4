"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least, check_seeds


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured.

    Attributes:
        seeds: One training and set of test patterns each.
        dim: Dimension d of a pattern.
        train_states: Patterns M of training.
        iterations: Steps T of descent.
        batch_size: Prompts B a step.
        train_examples: Examples of a training prompt.
        step_size: eta.
        scale: delta, the start of the weights.
        record_every: Steps between two records of the attention masses.
        chain_steps: Steps K of the tasks of Figures 17, 18 and 20.
        chain_fraction: alpha of their training, and alpha' where it is not varied.
        compare_fraction: alpha of the training for two steps, Figure 19.
        states: Test patterns M' of Figures 17, 18 and 20.
        lengths: Prompt lengths of Figures 17 and 18, ascending.
        fractions: Values of alpha' in Figure 17.
        taus: Values of tau in Figure 18.
        rho_of_taus: rho of those tasks.
        rhos: Values of rho.
        tau_of_rhos: tau of those tasks, and of the task of Figure 17.
        compare_lengths: Prompt lengths of Figure 19, ascending and odd.
        compare_fractions: Values of alpha' there.
        draws: Draws of the test patterns for each seed.
        prompts: Fresh prompts for each draw and setting of Figures 17 and 18.
        compare_prompts: The same for Figure 19.
        mass_prompts: Prompts for the attention masses.
        rows_at_once: Settings that run side by side.
    """

    seeds: tuple[int, ...]
    dim: int = 30
    train_states: int = 20
    iterations: int = 400
    batch_size: int = 64
    train_examples: int = 20
    step_size: float = 3.0
    scale: float = 0.2
    record_every: int = 10
    chain_steps: int = 3
    chain_fraction: float = 0.4
    compare_fraction: float = 0.5
    states: int = 10
    lengths: tuple[int, ...] = (5, 10, 20, 40, 60, 80, 100)
    fractions: tuple[float, ...] = (0.4, 0.6, 0.8, 1.0)
    taus: tuple[float, ...] = (0.4, 0.5, 0.6, 0.7)
    rho_of_taus: float = 0.88
    rhos: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8)
    tau_of_rhos: float = 0.29
    compare_lengths: tuple[int, ...] = (11, 41, 81, 161, 321)
    compare_fractions: tuple[float, ...] = (1.0, 0.5)
    draws: int = 4
    prompts: int = 125
    compare_prompts: int = 250
    mass_prompts: int = 128
    rows_at_once: int = 1

    def __post_init__(self):
        counts = ("batch_size", "train_examples", "draws", "mass_prompts")
        check_at_least(self, 1, *counts, "rows_at_once", "states", "chain_steps")
        check_at_least(self, 1, "iterations", "record_every")
        check_at_least(self, 2, "prompts", "compare_prompts")
        check_seeds("seeds", self.seeds)
        for name in ("lengths", "compare_lengths"):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or values[0] < 1:
                raise ValueError(f"{name}: expected ascending from 1, got {values}")
        if not all(length % 2 for length in self.compare_lengths):
            raise ValueError(
                "compare_lengths: expected odd numbers, at which two states do not "
                f"tie, got {self.compare_lengths}"
            )


PRESETS = {
    "cpu": Config(seeds=(0, 1, 2, 3, 4, 5)),
    "gpu": Config(
        seeds=tuple(range(16)),
        prompts=1000,
        compare_prompts=1000,
        mass_prompts=512,
        rows_at_once=32,
    ),
    # Figure 20 ends at 1,000 iterations; its step size is not known.
    "paper": Config(
        seeds=tuple(range(16)),
        iterations=1000,
        prompts=4000,
        compare_prompts=4000,
        mass_prompts=1024,
        rows_at_once=32,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "40 s, 2 cores"}
