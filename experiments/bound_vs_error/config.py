"""Config and presets of the experiment: the learners and the numbers of replicates."""

import dataclasses

from experiments.bound_vs_error.plan import planned_samples
from experiments.bound_vs_error.reference import GENERIC, ROWS


@dataclasses.dataclass(frozen=True)
class ProblemSize:
    """One row of the experiment: a learner and the size of its pools.

    Attributes:
        dim: Input dimension d_in.
        num_demos: Pool size N.
        shots: Shots b of Assumption 1.
        num_layers: Layers L.
        generic: Generic weights instead of those of gradient descent.
    """

    dim: int
    num_demos: int
    shots: int
    num_layers: int
    generic: bool = False

    @property
    def label(self) -> str:
        """Name of the row in ``metrics.jsonl`` and in figures."""
        kind = "generic" if self.generic else "GD"
        return (
            f"{kind} d={self.dim} N={self.num_demos} b={self.shots} L={self.num_layers}"
        )


@dataclasses.dataclass(frozen=True)
class Config:
    """The rows of the experiment and their numbers of replicates.

    Attributes:
        rows: Rows (d_in, N, b, L) with the weights of gradient descent.
        generic: Rows (N, b) with generic weights of width 3 and one layer.
        sweep: Pool sizes N of the two sweeps, d_in = 5 and L = 2: b = N / 2, and b =
            ``sweep_shots`` for the N above it.
        sweep_shots: The b that is kept.
        targets: Values of the bound for which the plan says how large N must be.
        replicates: Most replicates a row; a power of two.
        work: Most numbers N (d_in + 1) L drawn a row, but an eighth of the replicates
            are always made.
        seed: Of all draws; the streams of the rows differ.
    """

    rows: tuple[tuple[int, int, int, int], ...] = tuple(ROWS)
    generic: tuple[tuple[int, int], ...] = tuple(GENERIC)
    sweep: tuple[int, ...] = (20, 50, 100, 200, 500, 1000, 2000)
    sweep_shots: int = 20
    targets: tuple[float, ...] = (0.5, 0.2, 0.1)
    replicates: int = 4096
    work: int = 2**24
    seed: int = 0

    def __post_init__(self):
        # JSON stores tuples as lists.
        for name in ("rows", "generic"):
            pairs = tuple(map(tuple, getattr(self, name)))
            object.__setattr__(self, name, pairs)
        if self.replicates < 16 or self.replicates & (self.replicates - 1):
            raise ValueError(
                f"replicates: expected a power of two from 16, got {self.replicates}"
            )
        if self.work < 1:
            raise ValueError(f"work: expected a positive number, got {self.work}")
        for target in self.targets:
            if not 0 < target < 2:
                raise ValueError(f"targets: expected values in (0, 2), got {target}")
        for row in [*self.table(), *self.fraction_sweep(), *self.shots_sweep()]:
            sizes = (row.dim, row.num_demos, row.shots, row.num_layers)
            if min(sizes) < 1 or not row.num_demos >= 2 or row.shots >= row.num_demos:
                raise ValueError(
                    "rows: expected d_in, b, L >= 1 and N > b, got "
                    f"d_in={row.dim}, N={row.num_demos}, b={row.shots}, "
                    f"L={row.num_layers}"
                )

    def table(self) -> list[ProblemSize]:
        """Rows of the table: gradient descent, then generic weights."""
        gd = [ProblemSize(*row) for row in self.rows]
        return gd + [ProblemSize(2, N, b, 1, generic=True) for N, b in self.generic]

    def fraction_sweep(self) -> list[ProblemSize]:
        """Rows of the sweep over N with b = N / 2."""
        return [ProblemSize(5, N, N // 2, 2) for N in self.sweep]

    def shots_sweep(self) -> list[ProblemSize]:
        """Rows of the sweep over N with b fixed."""
        return [
            ProblemSize(5, N, self.sweep_shots, 2)
            for N in self.sweep
            if self.sweep_shots < N
        ]

    def planned(self) -> dict[float, ProblemSize]:
        """The planned row for each target of the bound."""
        sizes = {target: planned_samples(target) for target in self.targets}
        return {target: ProblemSize(5, N, N // 2, 2) for target, N in sizes.items()}

    def all_rows(self) -> list[ProblemSize]:
        """All rows without duplicates, those of the table first."""
        rows = [*self.table(), *self.fraction_sweep(), *self.shots_sweep()]
        return list(dict.fromkeys(rows + list(self.planned().values())))

    def replicates_of(self, row: ProblemSize) -> int:
        """Number of replicates of a row, a power of two."""
        affordable = self.work // (row.num_demos * (row.dim + 1) * row.num_layers)
        count = max(min(affordable, self.replicates), self.replicates // 8, 16)
        return 1 << (count.bit_length() - 1)


_MANY = Config(
    sweep=(20, 50, 100, 200, 500, 1000, 2000, 5000, 10000),
    replicates=2**15,
    work=2**29,
)
PRESETS = {"cpu": Config(), "gpu": _MANY, "paper": _MANY}
# Measured times; the other preset has not been run yet.
TIMES = {"cpu": "1 to 2 min, 2 cores", "paper": "9 min, 2 cores"}
