"""One training step: data, gradient and update as a function of the state."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PyTree

from icltheory._checks import (
    check_choice,
    check_nonnegative_int,
    check_positive_int,
    wrong,
)
from icltheory._core import Record
from icltheory.training.devices import (
    check_batch,
    replicate,
    shard_batch,
    shard_members,
)
from icltheory.training.objectives import LOSSES, in_context_loss
from icltheory.training.packing import unpack

_STREAMS = ("init", "data", "evaluation")


class TrainState(Record):
    """State of a training run, which determines the next step.

    Every random number is a function of ``seed`` and the number of steps taken.
    """

    step: Int[Array, "*seeds"]
    seed: Int[Array, "*seeds"]
    params: PyTree
    opt_state: PyTree


Metrics = dict[str, Array]


#: A traceable function from the state, a :class:`TrainState` or one made of several
#: that has their ``step``, to the next state and the metrics.
Step = Callable[[Any], tuple[Any, Metrics]]
Targets = Callable[[Any, Array, Array], Array]


@runtime_checkable
class Task(Protocol):
    """Protocol of a task for the trainer; user-defined tasks need these two names.

    ``sample(key, num_examples, num_prompts, active_dims=k)`` returns a
    :class:`~icltheory.regression.sources.Prompt` of ``num_examples`` examples and a
    query for each of ``num_prompts`` tasks, as a pure function of the key that can be
    traced; coordinates of the inputs from k on are 0, where k may be traced, and None
    stands for all. The tasks of :mod:`icltheory.regression.sources` have it.
    """

    @property
    def dim(self) -> int:
        """Dimension of the inputs."""

    def sample(
        self, key, num_examples: int, num_prompts: int, *, active_dims=None
    ) -> Any:
        """Draws a batch of prompts."""


@dataclasses.dataclass(frozen=True)
class Ramp:
    """A count that increases in equal steps: min(end, start + increment * stair).

    The stair at step t is t / interval, rounded down.

    Example:
        >>> [int(Ramp(5, 7, 1, 10)(t)) for t in (0, 9, 10, 25, 99)]
        [5, 5, 6, 7, 7]

    Source: Garg et al. 2022, Appendix A.2.
    """

    start: int  # value at step 0
    end: int  # value it stays at
    increment: int = 1  # height of a stair; 0 for a count that stays at start
    interval: int = 2000  # steps on a stair

    def __post_init__(self):
        for name in ("start", "end", "interval"):
            check_positive_int(name, getattr(self, name))
        check_nonnegative_int("increment", self.increment)
        if self.start > self.end:
            raise wrong("start", f"at most end {self.end}", self.start)

    def __call__(self, step: Int[Array, ""] | int) -> Int[Array, ""]:
        """Returns the value at a step, which may be traced."""
        climbed = self.start + self.increment * (jnp.asarray(step) // self.interval)
        return jnp.minimum(climbed, self.end)


@dataclasses.dataclass(frozen=True)
class Curriculum:
    """Which input dimensions and points of a prompt are used at a step.

    Coordinates beyond ``dims(step)`` are zero in the data, and points beyond
    ``points(step)`` are out of the loss. Both act as masks on arrays of full size.

    Example:
        >>> garg = Curriculum(Ramp(5, 20, 1, 2000), Ramp(11, 41, 2, 2000))
        >>> int(garg.dims(30_000)), int(garg.points(30_000))
        (20, 41)

    Source: Garg et al. 2022, Appendix A.2.
    """

    dims: Ramp
    points: Ramp

    @classmethod
    def none(cls, dim: int, num_points: int) -> "Curriculum":
        """Returns a curriculum that uses everything from the start."""
        return cls(Ramp(dim, dim), Ramp(num_points, num_points))


def stream_key(seed: Int[Array, ""] | int, stream: str) -> Array:
    """Root key of a run's random stream ``"init"``, ``"data"`` or ``"evaluation"``."""
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
    """Draws the initial state of a run, or of one run per seed.

    The Flax module is called with ``(X, y)`` of ``num_points`` points. Several seeds
    give every leaf a leading axis. Each device of the mesh holds all of the state, or
    its members of an ensemble.

    Example:
        >>> from icltheory.models import GPT2
        >>> from icltheory.regression.population import LinearPopulation
        >>> import optax
        >>> model = GPT2(dim=2, num_positions=8, width=8, num_layers=1, num_heads=1)
        >>> task = LinearPopulation.isotropic(2)
        >>> state = init_state(model, task, optax.sgd(0.1), (0, 1), num_points=4)
        >>> state.params["positions"].shape
        (2, 8, 8)

    Source: Garg et al. 2022, Appendix A.
    """
    check_positive_int("num_points", num_points)

    def init(seed):
        X = jnp.zeros((1, num_points, task.dim))
        params = model.init(stream_key(seed, "init"), X, X[:, :, 0])["params"]
        step = jnp.zeros((), jnp.int32)
        return TrainState(step, seed, params, optimizer.init(params))

    if jnp.issubdtype(getattr(seed, "dtype", int), jax.dtypes.prng_key):
        raise ValueError("seed: expected integers, got a key of jax.random")
    known = np.asarray(seed)
    if known.dtype.kind not in "iu" or np.any(known != known.astype(np.int32)):
        raise ValueError(f"seed: expected integers of 32 bits, got {seed}")
    seeds = jnp.asarray(known, jnp.int32)
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
    targets: Targets | None = None,
    mesh: Mesh | None = None,
    halves: bool | None = None,
) -> Step:
    r"""Builds one training step (data, gradient and update) that runs on the device.

    .. math:: \theta_{t+1} = \theta_t + u\!\left(\nabla_\theta
              \mathcal L(\theta_t; \text{batch}(\text{seed}, t))\right)

    The batch is a pure function of (seed, step), so a run resumes exactly on any number
    of devices. The metrics are ``loss`` and ``grad_norm``. For several seeds in one
    program use ``jax.vmap`` of the step, for members that differ in more
    :func:`make_ensemble_step`.

    Args:
        model: Flax module; called with ``(X, y)`` it predicts every prefix, and its
            ``predict`` answers the last query.
        num_points: Points of a prompt, the query included.
        accumulation: Parts into which the batch is split to save memory.
        loss_points: ``"all"`` prefixes, or only the ``"last"``.
        loss: As :func:`in_context_loss` has it; unless given the logistic loss if the
            task's ``targets`` are ``"sign"``, else the squared one.
        targets: Function of (task, X, y) to what the answers are compared with, such
            as :func:`bayes_targets`; the labels unless given.
        mesh: Devices over which the batch is split.
        halves: Whether each part of the batch is taken as two halves that do not wait
            for each other, which keeps the cores of a CPU busy; unless given on one CPU
            device where a part is even.

    Source: Garg et al. 2022, Appendix A.
    """
    counts = {"batch_size": batch_size, "num_points": num_points}
    for name, count in (counts | {"accumulation": accumulation}).items():
        check_positive_int(name, count)
    check_choice("loss_points", loss_points, ("all", "last"))
    check_choice("loss", loss, (None, *LOSSES))
    dims, points = curriculum.dims.end, curriculum.points.end
    for name, end, most in (("dims", dims, task.dim), ("points", points, num_points)):
        if end > most:
            raise wrong("curriculum", f"{name} that end at most at {most}", end)
    check_batch(batch_size, accumulation, mesh)
    if loss is None:
        signs = getattr(task, "targets", "real") == "sign"
        loss = "logistic" if signs else "squared"

    def mean_loss(params, X, y, active_points):
        variables = {"params": unpack(params, 0)}
        goal = y if targets is None else targets(task, X, y)
        if loss_points == "all":
            predictions: Any = model.apply(variables, X, y)
            return in_context_loss(predictions, goal, active_points, loss)
        context = X[:, :-1], y[:, :-1], X[:, -1]
        last: Any = model.apply(variables, *context, method="predict")
        return in_context_loss(last[:, None], goal[:, -1:], 1, loss)

    part = batch_size // accumulation
    if halves is None:
        alone = mesh is None or mesh.size == 1
        halves = alone and part % 2 == 0 and jax.default_backend() == "cpu"
    if halves and part % 2:
        raise ValueError(f"halves: expected an even part of the batch, got {part}")
    gradient = jax.value_and_grad(mean_loss)
    gradient = _accumulated(_in_halves(gradient) if halves else gradient, accumulation)

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        t = state.step
        if jnp.ndim(t):
            raise ValueError(
                f"state: expected one run, got {jnp.size(t)}; use make_ensemble_step"
            )
        key = jax.random.fold_in(stream_key(state.seed, "data"), t)
        prompt = task.sample(
            key, num_points - 1, batch_size, active_dims=curriculum.dims(t)
        )
        if not hasattr(prompt, "points"):
            kind = type(prompt).__name__
            raise ValueError(f"task.sample: expected a Prompt, got a {kind}")
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


def _in_halves(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """Value and gradient of a batch as the mean over two halves at once.

    A CPU's threads run operations that do not need each other side by side, and seldom
    find two in a gradient of one batch.
    """

    def whole(params, X, y, *rest):
        halves = zip(jnp.split(X, 2), jnp.split(y, 2), strict=True)
        first, second = (gradient(params, *half, *rest) for half in halves)
        return jax.tree.map(lambda a, b: (a + b) / 2, first, second)

    return whole


def _accumulated(gradient: Callable[..., Any], parts: int) -> Callable[..., Any]:
    """Value and gradient of a batch as the mean over its parts, one after the other."""
    if parts == 1:
        return gradient

    # The parts are interleaved, so that each is spread evenly over the devices.
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
