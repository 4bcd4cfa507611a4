"""Searches tasks for the levels of Figures 17 to 19, by attention that counts votes."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from experiments._frame.fields import check_at_least


@dataclasses.dataclass(frozen=True)
class VoteGrid:
    """Grid of tasks, and the prompts they are evaluated on.

    Attributes:
        prompts: Prompts of a task; all tasks share their random numbers.
        states: Number M' of states.
        steps: Numbers K of steps.
        probabilities: Probabilities p of the right follower of a state.
        gaps: Relative gaps rho to a rival, of probability p (1 - rho).
        rivals: Numbers of rivals; the rest is spread evenly over the other states.
        fractions: Values of alpha'.
        floor: Added to both errors before their ratio is taken, for what reading a
            figure and counting prompts leave open.
        seed: Seed of the prompts.
    """

    prompts: int = 1_000
    states: int = 10
    steps: tuple[int, ...] = (1, 2, 3)
    probabilities: tuple[float, ...] = (0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
    gaps: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    rivals: tuple[int, ...] = (1, 2)
    fractions: tuple[float, ...] = (0.4, 0.6, 0.8, 1.0)
    floor: float = 0.002
    seed: int = 0

    def __post_init__(self):
        check_at_least(self, 2, "prompts")
        check_at_least(self, 3, "states")
        if not self.steps or min(self.steps) < 1:
            raise ValueError(f"steps: expected numbers >= 1, got {self.steps}")
        if not self.rivals or not 1 <= min(self.rivals) <= max(self.rivals) < (
            self.states - 1
        ):
            raise ValueError(
                f"rivals: expected numbers from 1 to {self.states - 2}, "
                f"got {self.rivals}"
            )
        for name in ("probabilities", "gaps", "fractions"):
            values = getattr(self, name)
            if not values or not all(0 < value <= 1 for value in values):
                raise ValueError(
                    f"{name}: expected at least one value, each in (0, 1], got {values}"
                )
        if not self.floor > 0:
            raise ValueError(f"floor: expected a number > 0, got {self.floor}")
        if not any(True for _ in self.rows()):
            sizes = map(len, (self.probabilities, self.gaps, self.rivals))
            raise ValueError(
                "probabilities, gaps, rivals: expected a combination that gives a "
                f"distribution, got none in {math.prod(sizes)} combinations"
            )

    def rows(self):
        """Yields every feasible (p, rho, rivals) with its transition row."""
        for p, gap, rivals in itertools.product(
            self.probabilities, self.gaps, self.rivals
        ):
            row = row_of(p, gap, rivals, self.states)
            if row is not None:
                yield (p, gap, rivals), row


def row_of(p: float, gap: float, rivals: int, states: int) -> np.ndarray | None:
    """Probabilities of the next states, the correct one first; None if infeasible."""
    rival = p * (1 - gap)
    rest = (1 - p - rivals * rival) / (states - 1 - rivals)
    if rest < -1e-9 or rest > rival:
        return None
    return np.array([p, *[rival] * rivals, *[max(rest, 0)] * (states - 1 - rivals)])


class Task(NamedTuple):
    """Parameters of a task and its prompts.

    Attributes:
        p: Probability of the right follower.
        gap: rho.
        rivals: Number of rivals.
        fraction: alpha'.
        steps: K.
    """

    p: float
    gap: float
    rivals: int
    fraction: float
    steps: int

    @property
    def tau(self) -> float:
        """Probability of a correct path."""
        return self.p**self.steps

    def __str__(self) -> str:
        rivals = f"{self.rivals} rival" + "s" * (self.rivals > 1)
        return (
            f"K = {self.steps}, p = {self.p:g}, rho = {self.gap:g}, {rivals}, "
            f"alpha' = {self.fraction:g}"
        )


class Votes:
    """Prompts of one length, evaluated by attention that counts votes.

    States are counted from the correct one, 0, so that one row serves all of them. A
    step after a wrong one counts as wrong: it is right again only if a second error
    happens to lead back. Ties, also without any vote, are decided at random.
    """

    def __init__(self, grid: VoteGrid, lengths: Sequence[int]):
        draw = np.random.default_rng(grid.seed).random
        self.grid, self.lengths = grid, tuple(lengths)
        shape = grid.prompts, self.lengths[-1]
        self._start = draw(shape)
        self._steps = draw((max(grid.steps), *shape))
        self._ties = draw((2 * max(grid.steps), grid.prompts, 1, grid.states)) / 2
        # Example i belongs to all prompts of more than i examples.
        part = np.searchsorted(self.lengths, np.arange(shape[1]), side="right")
        self._place = np.arange(grid.prompts)[:, None] * len(self.lengths) + part

    def errors(self, row: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
        """Errors up to every step, with and without chain of thought, ``(K, lengths)``.

        Args:
            row: Probabilities of the followers of a state, the right one first.
            fraction: alpha'.

        Returns:
            The share of wrong steps of chain of thought with k steps, and the error of
            plain in-context learning of the k-th state, for k from 1.
        """
        others, upper = self.grid.states - 1, np.cumsum(row)
        spread = (self._start - fraction) / max(1 - fraction, 1e-9) * others
        elsewhere = 1 + np.clip(spread, 0, others - 1).astype(int)
        state = np.where(self._start < fraction, 0, elsewhere)
        relevant, wrong = state == 0, False
        chain, direct = [], []
        for k, draws in enumerate(self._steps):
            move = np.minimum(np.searchsorted(upper / upper[-1], draws), others)
            wrong = wrong | self._lost(state == 0, move, 2 * k)
            chain.append(wrong.mean(axis=0))
            state = (state + move) % self.grid.states
            direct.append(self._lost(relevant, state, 2 * k + 1).mean(axis=0))
        number = 1 + np.arange(len(chain))[:, None]
        return np.cumsum(chain, axis=0) / number, np.array(direct)

    def _lost(self, votes: np.ndarray, choice: np.ndarray, tie: int) -> np.ndarray:
        """Whether the correct state 0 is not the majority, ``(prompts, lengths)``."""
        M, shape = self.grid.states, (self.grid.prompts, len(self.lengths))
        kinds = (self._place * M + choice)[votes]
        counts = np.bincount(kinds, minlength=shape[0] * shape[1] * M)
        total = counts.reshape(*shape, M).cumsum(axis=1) + self._ties[tie]
        return total.argmax(axis=2) != 0


def search(grid: VoteGrid, lengths: Sequence[int], track=iter):
    """Errors of every task, with and without chain of thought, by :class:`Task`."""
    votes = Votes(grid, lengths)
    found = {}
    for (p, gap, rivals), row in track(list(grid.rows())):
        for fraction in grid.fractions:
            chain, direct = votes.errors(row, fraction)
            for K in grid.steps:
                task = Task(p, gap, rivals, fraction, K)
                found[task] = chain[K - 1], direct[K - 1]
    return found


def again(grid: VoteGrid, lengths: Sequence[int], tasks: Iterable[Task], prompts: int):
    """Errors of given tasks on fresh prompts, in the format of :func:`search`."""
    fresh = dataclasses.replace(grid, prompts=prompts, seed=grid.seed + 1)
    votes = Votes(fresh, lengths)
    found = {}
    for task in dict.fromkeys(tasks):
        row = row_of(task.p, task.gap, task.rivals, grid.states)
        if row is None:
            raise ValueError(f"tasks: expected tasks of the grid, got {task}")
        chain, direct = votes.errors(row, task.fraction)
        found[task] = chain[task.steps - 1], direct[task.steps - 1]
    return found
