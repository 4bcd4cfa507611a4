"""The training loop, which runs many steps per dispatch and keeps state on devices."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int
from icltheory.training.devices import to_host
from icltheory.training.packing import pack, unpack
from icltheory.training.steps import Step, TrainState

__all__ = ["Chunk", "Phase", "lower", "run"]


class Phase(NamedTuple):
    """A part of a run with its own step, until so many steps have been taken.

    All phases of a run share one layout of the state.
    """

    step: Step
    until: int


class Chunk(NamedTuple):
    """Metrics and timing of several steps, as yielded by :func:`run`.

    Attributes:
        state: State after them. It is given up when the next chunk is asked for.
        metrics: One NumPy array per metric, with an axis of the chunk's steps first.
        seconds: Wall time of the steps.
        compile_seconds: Wall time of the compilation before them, near 0 if there was
            none.
        memory_bytes: Device memory that the compiled steps need, their state included.
    """

    state: Any
    metrics: dict[str, np.ndarray]
    seconds: float
    compile_seconds: float
    memory_bytes: int


def lower(step: Step, state: Any, num_steps: int, *, packed: bool) -> Any:
    """Lowers the program of a chunk for the devices of the state.

    The state is arrays, or shapes and dtypes with their placement.
    """

    def scan(state):
        begin = _packed(state) if packed else state
        end, metrics = jax.lax.scan(lambda s, _: step(s), begin, None, num_steps)
        return unpack(end), metrics

    return jax.jit(scan, donate_argnums=0).lower(state)


def run(
    step: Step | Sequence[Phase],
    state: Any,
    num_steps: int,
    *,
    chunk_steps: int = 100,
    packed: bool | None = None,
    on_stage: Callable[[str], object] | None = None,
) -> Iterator[Chunk]:
    """Runs training steps until ``num_steps`` in total, one chunk per dispatch.

    A chunk is one compiled scan, and its input state is donated: what was passed in
    and what was yielded before must not be used after the next chunk is asked for.
    Chunks end at multiples of ``chunk_steps``, at ``num_steps`` and where a phase does,
    resumed or not. A loss that is not finite is an error.

    Args:
        step: Function from a state to the next one and its metrics, or phases that
            follow one another, each with such a function.
        state: Where to begin; its ``step`` says how many have been taken.
        num_steps: Steps in all.
        chunk_steps: Steps per dispatch.
        packed: Whether the state is in few arrays within a chunk, as :func:`pack` puts
            it; the step must know packed parameters, as that of :func:`make_step` does
            with the rules of :func:`make_optimizer`. On a GPU alone unless given: it
            saves launches, and moves sums in their last bits.
        on_stage: Called with ``"compiling"`` before a program is compiled and with
            ``"training"`` before it runs.
    """
    check_positive_int("num_steps", num_steps)
    check_positive_int("chunk_steps", chunk_steps)
    done = int(np.asarray(state.step).reshape(-1)[0])
    if done > num_steps:
        raise ValueError(f"num_steps: expected at least {done} steps, got {num_steps}")

    if packed is None:
        packed = jax.default_backend() == "gpu"

    phases = _phases(step, num_steps)
    tell = on_stage or (lambda stage: None)
    compiled: dict[tuple[int, int], Any] = {}
    while done < num_steps:
        index = next(i for i, phase in enumerate(phases) if done < phase.until)
        phase = phases[index]
        length = min(chunk_steps - done % chunk_steps, phase.until - done)
        key = index, length
        start = time.perf_counter()
        # A lowered program runs compiled or not at all; optax promotes step counts.
        with jax.disable_jit(False), jax.numpy_dtype_promotion("standard"):
            if key not in compiled:
                tell("compiling")
                lowered = lower(phase.step, state, length, packed=packed)
                compiled[key] = lowered.compile()
            tell("training")
            middle = time.perf_counter()
            state, metrics = compiled[key](state)
        # Every process gets the losses of all members, on any devices.
        metrics = to_host(metrics)
        _check_losses(metrics, done)
        done += length
        seconds = time.perf_counter() - middle
        memory = _memory(compiled[key])
        yield Chunk(state, metrics, seconds, middle - start, memory)


def _phases(step: Step | Sequence[Phase], num_steps: int) -> tuple[Phase, ...]:
    if not isinstance(step, Sequence):
        return (Phase(step, num_steps),)
    ends = [phase.until for phase in step]
    if not ends or ends[-1] != num_steps or sorted(set(ends)) != ends:
        raise ValueError(
            f"step: expected phases that ascend to {num_steps} steps, got {ends}"
        )
    return tuple(step)


def _packed(state: Any) -> Any:
    """Packs each model's part of the state, with leading ensemble axes."""

    def single(part):
        return isinstance(part, TrainState)

    return jax.tree.map(
        lambda part: pack(part, jnp.ndim(part.step)) if single(part) else part,
        state,
        is_leaf=single,
    )


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
