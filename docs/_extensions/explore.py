"""Exact risk curves over a grid of problems, for the page with sliders.

``python docs/_extensions/explore.py`` computes them (a minute on two cores) and writes
``docs/_static/explore_data.js``, which the repository keeps.
"""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory import regression as reg

FILE = Path(__file__).parents[1] / "_static" / "explore_data.js"
DIMS, NOISES, DECAYS = (2, 5, 10, 20), (0.0, 0.1, 0.25, 1.0), (0.0, 1.0, 2.0)
EXAMPLES, PROMPTS = 60, 2000


def population(dim: int, noise_var: float, decay: float) -> reg.LinearPopulation:
    """Inputs whose i-th variance is proportional to 1 / i^decay, with trace d."""
    values = np.arange(1.0, dim + 1) ** -decay
    cov = jnp.diag(jnp.asarray(values * dim / values.sum()))
    task = reg.LinearPopulation.isotropic(dim, noise_var, dtype=jnp.float64)
    return task.with_(input_cov=cov)


@functools.partial(jax.jit, static_argnums=1)
def _exact(task, sizes):
    ns = jnp.arange(sizes)
    one = jax.vmap(lambda n: reg.optimum(reg.LinearStep, task, n).risk)(ns)
    return one, jax.vmap(lambda n: reg.risk(reg.LeastSquares(), task, n))(ns)


def curves(dim: int, noise_var: float, decay: float) -> dict[str, Any]:
    """Risks over d after 0, 1, ... examples; None where one is unknown or infinite."""
    task, ns = population(dim, noise_var, decay), range(EXAMPLES + 1)
    one, least = _exact(task, EXAMPLES + 1)
    drawn = {"key": jax.random.key(0), "num_prompts": PROMPTS}
    bayes = reg.estimate_risk(reg.Bayes(task), task, ns, **drawn).mean
    found = {"one layer of linear attention": one, "least squares": least}
    found["Bayes"] = bayes
    if decay == 0:
        steps = [reg.optimum(reg.Steps(3), task, n).risk for n in ns[1:]]
        found["three gradient steps"] = [dim + noise_var, *steps]
    return {name: _rounded(np.asarray(risk) / dim) for name, risk in found.items()}


def _rounded(values: np.ndarray) -> list[float | None]:
    known = np.isfinite(values)
    return [
        float(f"{v:.4g}") if k else None for v, k in zip(values, known, strict=True)
    ]


def main() -> None:
    """Writes the data of the page."""
    jax.config.update("jax_enable_x64", True)
    rows = [
        {"d": d, "noise": s, "decay": a, "curves": curves(d, s, a)}
        for d in DIMS
        for s in NOISES
        for a in DECAYS
    ]
    text = json.dumps(rows, separators=(",", ":"))
    FILE.write_text(f"window.exploreData = {text};\n")


if __name__ == "__main__":
    main()
