"""The training loop: a step is a function of the state, many steps are one dispatch."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PyTree

from icltheory._checks import check_choice, check_positive_int
from icltheory._pytree import pytree
from icltheory.training.curriculum import Curriculum
from icltheory.training.devices import (
    check_batch,
    replicate,
    shard_batch,
    shard_members,
    to_host,
)
from icltheory.training.objectives import in_context_loss
from icltheory.training.packing import pack, unpack

__all__ = [
    "COMPILER_OPTIONS",
    "Chunk",
    "Step",
    "TrainState",
    "init_state",
    "lower",
    "make_step",
    "run",
    "stream_key",
]

# cuBLAS beats the generated GEMMs for products as narrow as these models'.
COMPILER_OPTIONS: dict[str, dict[str, bool | str]] = {
    "gpu": {"xla_gpu_enable_triton_gemm": False}
}
_STREAMS = ("init", "data", "evaluation")


@pytree
class TrainState:
    """Everything that the next step depends on.

    Attributes:
        step: Steps taken.
        seed: The run's seed; every random number is a function of it and the step.
        params: Parameters.
        opt_state: The optimiser's state.
    """

    step: Int[Array, "*seeds"]
    seed: Int[Array, "*seeds"]
    params: PyTree
    opt_state: PyTree


Metrics = dict[str, Array]
# Of a TrainState, or of a state made of several that has their ``step``.
Step = Callable[[Any], tuple[Any, Metrics]]


class Chunk(NamedTuple):
    """What :func:`run` yields after some steps.

    Attributes:
        state: State after them. It is given up when the next chunk is asked for.
        metrics: One NumPy array a metric, with an axis of the chunk's steps first.
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


@runtime_checkable
class Task(Protocol):
    """What the trainer asks of a task; see :mod:`icltheory.regression.tasks`."""

    @property
    def dim(self) -> int:
        """Dimension of the inputs."""
        ...

    def sample(
        self, key, num_examples: int, batch_size: int, *, active_dims=None
    ) -> Any:
        """Draws a batch of prompts."""
        ...


def stream_key(seed: Int[Array, ""] | int, stream: str) -> Array:
    """Root key of one of a run's random streams, which never overlap.

    Args:
        seed: The run's seed, possibly traced.
        stream: ``"init"``, ``"data"`` or ``"evaluation"``.

    Returns:
        A typed key.

    Raises:
        ValueError: if the stream is unknown.

    References:
        Counter-based randomness. Verified by ``tests/training/test_loop.py``.
    """
    check_choice("stream", stream, _STREAMS)
    return jax.random.fold_in(jax.random.key(seed), _STREAMS.index(stream))


def init_state(
    model: nn.Module,
    task: Task,
    optimizer: optax.GradientTransformation,
    seed: int | Sequence[int],
    *,
    num_points: int,
    mesh: Mesh | None = None,
) -> TrainState:
    """Draws the initial state of a run, or of one run for each of several seeds.

    Args:
        model: Flax module called with ``(X, y)``.
        task: Task that says the input dimension.
        optimizer: Optimiser whose state is started.
        seed: One seed, or several for an ensemble with a leading axis.
        num_points: Points :math:`P` of a prompt.
        mesh: Devices that hold the state: each all of it, or its members of an
            ensemble.

    Returns:
        The state at step 0.

    Example:
        >>> from icltheory.models import GPT2
        >>> from icltheory.regression.tasks import LinearRegression
        >>> import optax
        >>> model = GPT2(dim=2, num_positions=8, width=8, num_layers=1, num_heads=1)
        >>> task = LinearRegression.isotropic(2)
        >>> state = init_state(model, task, optax.sgd(0.1), (0, 1), num_points=4)
        >>> state.params["positions"].shape
        (2, 8, 8)

    References:
        Garg et al. 2022, Appendix A. Verified by ``tests/training/test_loop.py``.
    """

    def init(seed):
        X = jnp.zeros((1, num_points, task.dim))
        params = model.init(stream_key(seed, "init"), X, X[:, :, 0])["params"]
        step = jnp.zeros((), jnp.int32)
        return TrainState(step, seed, params, optimizer.init(params))

    seeds = jnp.asarray(seed, jnp.int32)
    make = jax.jit(jax.vmap(init) if seeds.ndim else init)
    place = shard_members if seeds.ndim else replicate
    return place(make(seeds), mesh)


def make_step(
    model: nn.Module,
    task: Task,
    optimizer: optax.GradientTransformation,
    curriculum: Curriculum,
    *,
    batch_size: int,
    num_points: int,
    accumulation: int = 1,
    loss_points: str = "all",
    loss: str | None = None,
    mesh: Mesh | None = None,
) -> Step:
    r"""Builds one training step: data, gradient, update, all on the device.

    .. math:: \theta_{t+1} = \theta_t + u\!\left(\nabla_\theta
              \mathcal L(\theta_t; \text{batch}(\text{seed}, t))\right)

    The batch is a pure function of (seed, step), so a run resumes exactly and does not
    depend on how many devices share the batch. For several seeds in one program use
    ``jax.vmap`` of the step on an ensemble's state, for models that differ in more
    :func:`make_ensemble_step`.

    Args:
        model: Flax module; called with ``(X, y)`` it predicts every prefix, and its
            ``predict`` answers the last query.
        task: Where prompts come from.
        optimizer: Update rule :math:`u`.
        curriculum: Which coordinates and points count.
        batch_size: Prompts a step.
        num_points: Points of a prompt, the query included.
        accumulation: Parts into which the batch is split to save memory.
        loss_points: ``"all"`` prefixes, or only the ``"last"``.
        loss: As :func:`in_context_loss` has it; ``None`` for the logistic loss if the
            task's ``targets`` are ``"sign"``, else the squared one.
        mesh: Devices over which the batch is split.

    Returns:
        A function from a state to the next state and its metrics ``loss`` and
        ``grad_norm``.

    Raises:
        ValueError: if a count is not positive, or does not divide.

    References:
        Garg et al. 2022, Appendix A. Verified by ``tests/training/test_loop.py``.
    """
    for name, value in (
        ("batch_size", batch_size),
        ("num_points", num_points),
        ("accumulation", accumulation),
    ):
        check_positive_int(name, value)
    check_choice("loss_points", loss_points, ("all", "last"))
    check_batch(batch_size, accumulation, mesh)
    if loss is None:
        signs = getattr(task, "targets", "real") == "sign"
        loss = "logistic" if signs else "squared"

    def mean_loss(params, X, y, active_points):
        variables = {"params": unpack(params, 0)}
        if loss_points == "all":
            predictions: Any = model.apply(variables, X, y)
            return in_context_loss(predictions, y, active_points, loss)
        context = X[:, :-1], y[:, :-1], X[:, -1]
        last: Any = model.apply(variables, *context, method="predict")
        return in_context_loss(last[:, None], y[:, -1:], 1, loss)

    gradient = _accumulated(jax.value_and_grad(mean_loss), accumulation)

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        t = state.step
        key = jax.random.fold_in(stream_key(state.seed, "data"), t)
        prompt = task.sample(
            key, num_points - 1, batch_size, active_dims=curriculum.dims(t)
        )
        X, y = shard_batch(prompt.points(), mesh)
        value, grads = gradient(state.params, X, y, curriculum.points(t))
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        new = TrainState(t + 1, state.seed, params, opt_state)
        if mesh is not None:
            everywhere = NamedSharding(mesh, PartitionSpec())
            new = jax.lax.with_sharding_constraint(new, everywhere)
        return new, {"loss": value, "grad_norm": optax.tree.norm(grads)}

    return step


def _accumulated(gradient: Callable[..., Any], parts: int) -> Callable[..., Any]:
    """Value and gradient of a batch as the mean over its parts, one at a time."""
    if parts == 1:
        return gradient

    # The parts interleave so that each keeps its share on every device.
    def split(leaf):
        return jnp.moveaxis(leaf.reshape(-1, parts, *leaf.shape[1:]), 1, 0)

    def whole(params, X, y, *rest):
        def add(total, part):
            return jax.tree.map(jnp.add, total, gradient(params, *part, *rest)), None

        shapes = jax.eval_shape(gradient, params, X, y, *rest)
        zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        total, _ = jax.lax.scan(add, zero, (split(X), split(y)))
        return jax.tree.map(lambda leaf: leaf / parts, total)

    return whole


def lower(step: Step, state: Any, num_steps: int, *, packed: bool) -> Any:
    """Lowers the program of a chunk, for the devices that the state is placed on.

    Args:
        step: Function from a state to the next one and its metrics.
        state: Where to begin; arrays, or shapes and dtypes with their placement.
        num_steps: Steps of the chunk.
        packed: As in :func:`run`.

    Returns:
        What ``jax.jit`` lowered; its ``compile`` takes :data:`COMPILER_OPTIONS`.

    References:
        Garg et al. 2022, Appendix A. Verified by ``tests/training/test_packing.py``.
    """

    def scan(state):
        begin = _packed(state) if packed else state
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
) -> Iterator[Chunk]:
    """Takes steps until ``num_steps`` have been taken in all, a chunk a dispatch.

    A chunk is one compiled scan, and its input state is donated: what was passed in
    and what was yielded before must not be used after the next chunk is asked for.
    Chunks end at multiples of ``chunk_steps`` and at ``num_steps``, resumed or not.

    Args:
        step: Function from a state to the next one and its metrics.
        state: Where to begin; its ``step`` says how many have been taken.
        num_steps: Steps in all.
        chunk_steps: Steps a dispatch.
        packed: Whether the blocks of the state are stacks within a chunk; the step must
            know packed parameters, as that of :func:`make_step` does. On a GPU alone
            unless given: it saves launches, and moves sums in their last bits.

    Returns:
        An iterator over chunks.

    Raises:
        ValueError: if a count is not positive or the state is beyond ``num_steps``.
        FloatingPointError: if a loss is not finite; the message names the step. Models
            that the metric ``alive`` reports as stopped may have any, but for the last.

    References:
        Garg et al. 2022, Appendix A. Verified by ``tests/training/test_loop.py``.
    """
    check_positive_int("num_steps", num_steps)
    check_positive_int("chunk_steps", chunk_steps)
    done = int(np.asarray(state.step).reshape(-1)[0])
    if done > num_steps:
        raise ValueError(f"num_steps: expected at least {done} steps, got {num_steps}")

    if packed is None:
        packed = jax.default_backend() == "gpu"

    compiled: dict[int, Any] = {}
    while done < num_steps:
        length = min(chunk_steps - done % chunk_steps, num_steps - done)
        start = time.perf_counter()
        if length not in compiled:
            lowered = lower(step, state, length, packed=packed)
            options = COMPILER_OPTIONS.get(jax.default_backend())
            compiled[length] = lowered.compile(options)
        middle = time.perf_counter()
        state, metrics = compiled[length](state)
        # Every process sees the losses of all members, wherever they are.
        metrics = to_host(metrics)
        _check_losses(metrics, done)
        done += length
        seconds = time.perf_counter() - middle
        memory = _memory(compiled[length])
        yield Chunk(state, metrics, seconds, middle - start, memory)


def _packed(state: Any) -> Any:
    """Stacks the blocks behind the axes of the ensemble, if there are any."""

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
            f"loss: expected a finite value, got none at step {step}"
        )
