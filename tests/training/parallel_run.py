"""Trainings over several devices as a program of its own; prints numbers as JSON.

Usage: parallel_run.py one FOLDER RESUMED    # one process: every mesh over its devices
       parallel_run.py two FOLDER            # one of two processes that Slurm started
"""

import functools
import json
import os
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

from icltheory import training
from icltheory.models import GPT2
from icltheory.regression import LinearPopulation
from icltheory.training import devices

MODEL = GPT2(3, 14, width=8, num_layers=1, num_heads=2, mlp=False)
OPTIMIZER = training.make_optimizer(training.OptimizerConfig("adam", 1e-2), 8)
SIZES = {"batch_size": 16, "num_points": 7}
COLLECTIVES = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"


def task():
    return LinearPopulation.isotropic(3, dtype=jnp.float32)


def step_on(mesh, accumulation=1):
    curriculum = training.Curriculum(training.Ramp(1, 3, 1, 2), training.Ramp(7, 7))
    return training.make_step(
        MODEL,
        task(),
        OPTIMIZER,
        curriculum,
        **SIZES,
        accumulation=accumulation,
        mesh=mesh,
    )


def start(mesh=None, seed=0):
    return training.init_state(MODEL, task(), OPTIMIZER, seed, num_points=7, mesh=mesh)


def losses(mesh, until, state=None, accumulation=1):
    """Losses to a step, and the state there."""
    state, found = start(mesh) if state is None else state, []
    for chunk in training.run(step_on(mesh, accumulation), state, until, chunk_steps=4):
        found += np.asarray(chunk.metrics["loss"], np.float64).tolist()
    return found, chunk.state


def ensemble(mesh, seeds):
    """Losses of four steps of each seed, and how often devices talk meanwhile."""

    def four(state):
        step = devices.over_members(step_on(mesh), mesh)
        return jax.lax.scan(lambda s, _: step(s), state, None, 4)

    state = devices.shard_members(start(seed=seeds), mesh)
    compiled = jax.jit(four).lower(state).compile()
    talk = len(re.findall(rf" ({COLLECTIVES})(-start)?\(", compiled.as_text()))
    found = devices.to_host(compiled(state)[1]["loss"])
    return {"losses": np.asarray(found, np.float64).tolist(), "collectives": talk}


def furthest(a, b):
    """Largest difference of two trees of arrays, relative; infinities are equal."""

    def distance(a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        return np.max(np.where(same, 0, np.abs(a - b) / np.maximum(np.abs(b), 1e-30)))

    with np.errstate(invalid="ignore"):
        return max(map(float, jax.tree.leaves(jax.tree.map(distance, a, b))))


def refusal():
    """What a process hears that no launcher started."""
    try:
        training.initialize_distributed()
    except ValueError as error:
        return str(error)
    return None


def one(folder, resumed):
    """Everything that one process can do with its devices."""
    # What is trained again on the same devices is compiled once.
    jax.config.update("jax_compilation_cache_dir", f"{folder}-programs")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    report = {"no launcher": refusal()}
    single, every = devices.device_mesh(1), devices.device_mesh()
    report["devices"] = every.size
    report["parts"], _ = losses(every, 8, accumulation=2)
    first, state = losses(single, 4)
    store = training.Checkpoints(folder)
    store.save(4, state, first)
    report["one"] = first + losses(single, 8, state)[0]
    restored = store.restore(start(every))
    rest, state = losses(every, 8, restored.state)
    report["one to eight"] = restored.extra + rest
    store.save(8, state, first + rest)
    back = store.restore(start(single)).state
    report["eight to one"] = furthest(devices.to_host(back), devices.to_host(state))
    restored = training.Checkpoints(resumed).restore(start(single))
    rest, _ = losses(single, 8, restored.state)
    report["two processes to one"] = restored.extra + rest
    seeds = tuple(range(8))
    for parts in (None, 8, 2):
        mesh = None if parts is None else devices.device_mesh(models=parts)
        report[f"ensemble {parts}"] = ensemble(mesh, seeds)
    return report


def two(folder):
    """Data over both processes, then a member on each; at last process 1 dies."""
    # A silent process is given up after 100 seconds; a test has less time.
    begin = jax.distributed.initialize
    jax.distributed.initialize = functools.partial(begin, heartbeat_timeout_seconds=10)
    training.initialize_distributed()
    mesh = devices.device_mesh()
    first, state = losses(mesh, 4)
    training.Checkpoints(folder).save(4, state, first)
    report = {"devices": mesh.size, "processes": jax.process_count(), "losses": first}
    report["ensemble"] = ensemble(devices.device_mesh(models=2), (0, 1))
    print(json.dumps(report), flush=True)
    if jax.process_index() == 1:
        os._exit(1)
    losses(mesh, 8, state)


if __name__ == "__main__":
    name, *folders = sys.argv[1:]
    if name == "two":
        two(*folders)
    else:
        print(json.dumps(one(*folders)))
