"""A short training run as a program of its own; prints its losses as JSON.

Usage: parallel_run.py FOLDER [COORDINATOR NUM_PROCESSES PROCESS_ID]
"""

import json
import sys

import jax.numpy as jnp
import numpy as np

from icltheory import training
from icltheory.models import GPT2
from icltheory.regression.tasks import LinearRegression


def main(folder, coordinator=None, num_processes=1, process_id=0):
    if coordinator is not None:
        training.initialize_distributed(
            coordinator, int(num_processes), int(process_id)
        )
    mesh = training.data_mesh()
    task = LinearRegression.isotropic(3, dtype=jnp.float32)
    model = GPT2(3, 14, width=8, num_layers=1, num_heads=2)
    curriculum = training.Curriculum(training.Ramp(1, 3, 1, 2), training.Ramp(7, 7))
    tx = training.make_optimizer(training.OptimizerConfig("adam", 1e-2), 8)
    step = training.make_step(
        model, task, tx, curriculum, batch_size=16, num_points=7, mesh=mesh
    )
    state = training.init_state(model, task, tx, 0, num_points=7, mesh=mesh)
    store = training.Checkpoints(folder)
    losses = []
    for chunk in training.run(step, state, 4, chunk_steps=2):
        losses += np.asarray(chunk.metrics["loss"], np.float64).tolist()
    store.save(4, chunk.state, {"losses": losses})
    like = training.init_state(model, task, tx, 0, num_points=7, mesh=mesh)
    restored = store.restore(like)
    assert restored.extra == {"losses": losses}
    for chunk in training.run(step, restored.state, 8, chunk_steps=2):
        losses += np.asarray(chunk.metrics["loss"], np.float64).tolist()
    print(json.dumps({"losses": losses, "devices": mesh.size}))


if __name__ == "__main__":
    main(*sys.argv[1:])
