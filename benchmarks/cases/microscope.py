"""Which algorithm a d = 20 model runs, against twelve families, compiling included.

The alternative is SciPy's search for ridge's penalty with a NumPy loop over prompts,
scaled up to twelve families.
"""

import jax
import numpy as np
import scipy.optimize

from benchmarks.suite import Pair, case
from icltheory import microscope
from icltheory.regression import LinearPopulation, Ridge

DIM, EXAMPLES, PENALTY = 20, 40, 1.5
SIZES = {"2,000 prompts, N 40": (2000,)}


def search(prompt, answers) -> float:
    """Ridge's best penalty by a search with a loop over prompts."""
    X, y, x = (np.asarray(a) for a in (prompt.X, prompt.y, prompt.x_query))

    def loss(log_penalty):
        eye = np.exp(log_penalty) * np.eye(DIM)
        found = [
            q @ np.linalg.solve(A.T @ A + eye, A.T @ b)
            for A, b, q in zip(X, y, x, strict=True)
        ]
        return np.mean((np.array(found) - answers) ** 2)

    best = scipy.optimize.minimize_scalar(loss, bounds=(-5, 5), method="bounded")
    return float(np.exp(best.x))


@case("the microscope, 12 families, d = 20, with its compilation", SIZES)
def bench_microscope(count: int) -> Pair:
    source, key = LinearPopulation.isotropic(DIM, 0.25), jax.random.key(0)
    drawn = microscope.models.draw(source, EXAMPLES, count, key)
    prompt = microscope.models.after(drawn, EXAMPLES)
    answers = np.asarray(microscope.responses(Ridge(PENALTY), prompt).answers)
    families = len(microscope.families_for(source))

    def ours():
        options = {"num_examples": EXAMPLES, "key": key, "num_prompts": count}
        found = microscope.identify(Ridge(PENALTY), source, **options)
        return found.last["ridge"].parameters["penalty"]

    return Pair(
        ours,
        lambda: search(prompt, answers),
        "NumPy and SciPy",
        part=(1, families, "families"),
        error=lambda got, found: abs(got - found) / PENALTY,
        tolerance=1e-3,
        cold=True,
    )
