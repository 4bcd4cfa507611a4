"""Training an ensemble in one program, and training its members one by one.

The model is that of the training step, in bfloat16 on a GPU and float32 on a CPU, with
Adam. The difference is that of a member's losses from those of the model trained alone.
"""

import numpy as np

from benchmarks.garg import chunks, published, set_up, step_floor, title
from benchmarks.suite import Pair, case, disagreement, on_gpu
from icltheory import training
from icltheory.training import Member

RATES = (1e-4, 2e-4)
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2}
# Members, and how many of them are trained at once: by default all on a GPU, one on a
# CPU, for which the last case shows the reason.
SIZES: dict[str, tuple[int, int | None]] = {
    f"{count} member{'s' * (count > 1)}": (count, None) for count in (8, 4, 2, 1)
}
if not on_gpu():
    SIZES["8 members, products batched"] = (8, 8)


@case(title("Ensembles"), SIZES)
def bench_ensemble(count: int, at_once: int | None) -> Pair:
    config = published(precision="bfloat16" if on_gpu() else "float32")
    steps = 100 if on_gpu() else 10
    alone = chunks(config, steps)
    losses = np.asarray(next(alone).metrics["loss"])
    # ``chunks`` sets the precision of products for both.
    setup = set_up(config, devices=1)
    rates = RATES[: min(count, len(RATES))]
    seeds = range(count // len(rates))
    members = [Member(seed, learning_rate=rate) for rate in rates for seed in seeds]
    args = setup.model, setup.task, config.optimizer, members
    sizes = {"num_steps": config.steps, "num_points": config.num_points}
    options = {**sizes, "batch_size": config.batch_size, "at_once": at_once}
    step = training.make_ensemble_step(*args, config.curriculum, **options)
    state = training.init_ensemble(*args, **sizes)
    limit = step_floor(config, count, state)
    fused = training.run(step, state, 10**6, chunk_steps=steps)
    first = next(fused)
    return Pair(
        lambda: next(fused).metrics,
        lambda: [next(alone).metrics for _ in range(count)],
        "one model after another",
        per=steps,
        floor=limit,
        error=disagreement(np.asarray(first.metrics["loss"])[:, 0], losses),
        tolerance=TOLERANCES[config.precision],
        precision=config.precision,
        facts={"compile s": first.compile_seconds, "MiB": first.memory_bytes / 2**20},
        rates={"model-steps/s": count},
    )
