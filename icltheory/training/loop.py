"""The training loop, which runs many steps per dispatch and keeps state on devices."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int
from icltheory.training.devices import to_host
from icltheory.training.packing import pack, unpack
from icltheory.training.steps import Step, TrainState


class Chunk(NamedTuple):
    """Metrics and timing of several steps, as yielded by :func:`run`."""

    state: Any  # state after them, until the next chunk is requested
    metrics: dict[str, np.ndarray]  # with an axis of the chunk's steps first
    seconds: float  # wall time of the steps
    compile_seconds: float  # wall time of the compilation before them
    memory_bytes: int  # device memory that the steps need, their state included


def lower(step: Step, state: Any, num_steps: int, *, packed: bool) -> Any:
    """Lowers the program of a chunk for the devices of the state.

    The state is arrays, or shapes and dtypes with their placement.
    """

    def single(part):
        return isinstance(part, TrainState)

    def packed_part(part):
        return pack(part, jnp.ndim(part.step)) if single(part) else part

    def scan(state):
        begin = jax.tree.map(packed_part, state, is_leaf=single) if packed else state
        end, metrics = jax.lax.scan(lambda s, _: step(s), begin, None, num_steps)
        return unpack(end), metrics

    return jax.jit(scan, donate_argnums=0).lower(state)


def run(
    step: Step,
    state: Any,
    num_steps: int,
    *,
    chunk_steps: int = 100,
    packed: bool | None = None,
    on_stage: Callable[[str], object] | None = None,
) -> Iterator[Chunk]:
    """Runs training steps until ``num_steps`` in total, one chunk per dispatch.

    A chunk is one compiled scan, and its input state is donated: a state that was
    passed in or yielded must not be used after the next chunk is requested. Chunks end
    at multiples of ``chunk_steps`` and at ``num_steps``, resumed or not. A loss that is
    not finite is an error. A run of several phases is a call for each, with its own
    step, on the state that the one before left.

    ``packed`` puts the state in few arrays within a chunk (:func:`pack`); unless given,
    on a GPU only. It saves launches, there 15 % of a step's time, and moves sums in
    their last bits. The step must accept packed parameters, as that of
    :func:`make_step` does with the rules of :func:`make_optimizer`.

    ``on_stage`` is called with ``"compiling"`` before a program is compiled and with
    ``"training"`` before it runs.
    """
    check_positive_int("num_steps", num_steps)
    check_positive_int("chunk_steps", chunk_steps)
    done = int(np.asarray(state.step).reshape(-1)[0])
    if done > num_steps:
        raise ValueError(f"num_steps: expected at least {done} steps, got {num_steps}")

    if packed is None:
        packed = jax.default_backend() == "gpu"

    tell = on_stage or (lambda stage: None)
    compiled: dict[int, Any] = {}
    while done < num_steps:
        length = min(chunk_steps - done % chunk_steps, num_steps - done)
        start = time.perf_counter()
        # A lowered program runs compiled or not at all; optax promotes step counts.
        with jax.disable_jit(False), jax.numpy_dtype_promotion("standard"):
            if length not in compiled:
                tell("compiling")
                lowered = lower(step, state, length, packed=packed)
                compiled[length] = lowered.compile()
            tell("training")
            middle = time.perf_counter()
            state, metrics = compiled[length](state)
        # Every process gets the losses of all members, on any devices.
        metrics = to_host(metrics)
        _check_losses(metrics, done)
        done += length
        seconds = time.perf_counter() - middle
        memory = _memory(compiled[length])
        yield Chunk(state, metrics, seconds, middle - start, memory)


def _memory(compiled: Any) -> int:
    need = compiled.memory_analysis()
    new = need.output_size_in_bytes - need.alias_size_in_bytes
    return need.argument_size_in_bytes + need.temp_size_in_bytes + new


def _check_losses(metrics: dict[str, np.ndarray], first_step: int) -> None:
    losses = np.asarray(metrics["loss"])
    alive = np.asarray(metrics.get("alive", np.ones_like(losses, bool)))
    fine = (np.isfinite(losses) | ~alive).reshape(len(losses), -1).all(axis=1)
    fine &= alive.reshape(len(losses), -1).any(axis=1)
    if not fine.all():
        step = first_step + int(np.argmin(fine))
        raise FloatingPointError(
            f"loss: not finite at step {step}; reduce the learning rate"
        )
