"""Which algorithm a d = 20 model runs, against thirteen families, compiling included.

There is no usual alternative: published analyses tune one family each.
"""

import jax

from benchmarks.suite import Pair, case
from icltheory import microscope
from icltheory.regression import LinearPopulation, Ridge

SIZES = {"2,000 prompts, N 40": (2000,)}


@case("the microscope, 13 families, d = 20, with its compilation", SIZES)
def bench_microscope(count: int) -> Pair:
    source, key = LinearPopulation.isotropic(20, 0.25), jax.random.key(0)

    def ours():
        options = {"num_examples": 40, "key": key, "num_prompts": count}
        return microscope.identify(Ridge(1.5), source, **options).best.distance.mean

    return Pair(ours, error=None, cold=True)
