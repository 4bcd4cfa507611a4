"""Tunes a plan by measurement, for one shape on this device."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_choice, check_positive_int
from icltheory._named_errors import named_errors
from icltheory._public import shown
from icltheory.batching import Progress, reported
from icltheory.kernels import attention, dense, mlp
from icltheory.kernels._pallas import available
from icltheory.kernels.choice import KernelChoice, KernelTiming, choose
from icltheory.kernels.plan import Plan, Tile

__all__ = [
    "COMPILER_OPTIONS",
    "SUBJECTS",
    "Problem",
    "TuningSubject",
    "TunedPlan",
    "tune",
]

# For products as narrow as in these models, cuBLAS is faster than generated GEMMs.
# Training uses this option, so timing must use it too.
COMPILER_OPTIONS: dict[str, dict[str, bool | str]] = {
    "gpu": {"xla_gpu_enable_triton_gemm": False}
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """Sizes of one block's computation.

    Args:
        batch: Prompts B.
        tokens: Tokens T of a prompt.
        width: Width of the residual stream.
        num_heads: Heads.
        dtype: Dtype of activations and products.
    """

    batch: int
    tokens: int
    width: int
    num_heads: int
    dtype: Any

    def __post_init__(self):
        for name in ("batch", "tokens", "width", "num_heads"):
            check_positive_int(name, getattr(self, name))
        object.__setattr__(self, "dtype", jnp.dtype(self.dtype))

    def stream(self, times: int = 1) -> tuple[int, int, int]:
        """Shape of activations ``times`` as wide as the residual stream."""
        return self.batch, self.tokens, times * self.width


@dataclasses.dataclass(frozen=True)
class TuningSubject:
    """A kernel in the form that the tuner needs.

    Args:
        function: Takes the problem; returns the function of the arrays and of the
            keywords ``tile``, ``backward`` and ``interpret``.
        shapes: Takes the problem; returns the arrays' shapes: activations have three
            axes, weights (in, out) two, scales and biases one.
        candidates: Takes the problem; returns ``{"tile": [...], "backward": [...]}``.
    """

    function: Callable[[Problem], Callable[..., Any]]
    shapes: Callable[[Problem], Sequence[tuple[int, ...]]]
    candidates: Callable[[Problem], Mapping[str, Sequence[Any]]]


def _attention(problem: Problem) -> Callable[..., jax.Array]:
    return functools.partial(attention.causal_attention, num_heads=problem.num_heads)


def _norm_linear(p: Problem) -> list[tuple[int, ...]]:
    w = p.width
    return [p.stream(), (w,), (w,), (w, 3 * w), (3 * w,)]


def _linear_residual(p: Problem) -> list[tuple[int, ...]]:
    return [p.stream(), p.stream(), (p.width, p.width), (p.width,)]


def _residual_mlp(p: Problem) -> list[tuple[int, ...]]:
    w = p.width
    return [p.stream(), (w,), (w,), (w, 4 * w), (4 * w,), (4 * w, w), (w,)]


SUBJECTS = {
    "attention": TuningSubject(
        _attention, lambda p: [p.stream(3)], attention.candidates
    ),
    "norm_linear": TuningSubject(
        lambda _: dense.norm_linear, _norm_linear, dense.norm_linear_candidates
    ),
    "linear_residual": TuningSubject(
        lambda _: dense.linear_residual,
        _linear_residual,
        dense.linear_residual_candidates,
    ),
    "residual_mlp": TuningSubject(
        lambda _: mlp.residual_mlp, _residual_mlp, mlp.candidates
    ),
}


@dataclasses.dataclass(frozen=True)
class TunedPlan:
    """A plan with the measurements that it was chosen by.

    Args:
        plan: The choice of each kernel.
        table: Name of the kernel and pass, such as ``"attention.forward"``, and its
            timings; empty where nothing was measured.
        problem: The shape.
        device: Kind of the device.
    """

    plan: Plan
    table: tuple[tuple[str, tuple[KernelTiming, ...]], ...]
    problem: Problem
    device: str

    def to_json(self) -> dict[str, Any]:
        """Returns numbers, strings and dictionaries of them."""
        return {
            "plan": self.plan.to_json(),
            "table": {
                name: [row.to_json() for row in rows] for name, rows in self.table
            },
            "problem": {
                **dataclasses.asdict(self.problem),
                "dtype": self.problem.dtype.name,
            },
            "device": self.device,
        }


@named_errors
def tune(
    batch: int,
    tokens: int,
    width: int,
    num_heads: int,
    dtype: Any,
    *,
    subjects: Mapping[str, TuningSubject] | None = None,
    calls: int = 20,
    repeats: int = 9,
    interpret: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress | None = None,
) -> TunedPlan:
    """Chooses every kernel of a block by its measured time, with its gradient.

    Of each kernel the fastest tile forward is found first, by the value alone; then the
    twin, whatever else computes the whole, and that tile with each gradient are timed
    at value and gradient together, as training runs them, and the fastest is the plan.
    A call is repeated on the device within one program, since launching one from Python
    takes longer than it runs. Errors are measured against the twin in float32 (float64
    where x64 is on) with full products.

    Args:
        batch: Prompts B.
        tokens: Tokens T of a prompt.
        width: Width of the residual stream.
        num_heads: Heads.
        dtype: Dtype of activations and products.
        subjects: Kernels to tune by the name of their field; ``None`` takes all.
        calls: Calls within one timed program.
        repeats: Timed programs of each candidate.
        interpret: Time interpreted kernels, on any device; for tests.
        clock: Clock in seconds.
        progress: Called as ``progress(done, total, part)`` after each kernel; see
            :mod:`icltheory.batching`.

    Returns:
        The plan with its timings. Where the device cannot compile the kernels, that is
        the plan of twins, and nothing is timed.

    Raises:
        ValueError: if a size is not positive or a subject is unknown.

    Example:
        >>> import jax.numpy as jnp
        >>> tune(2, 8, 16, 2, jnp.float32).plan == Plan.twins()  # on a CPU
        True

    References:
        The shapes are those of Garg et al. 2022, Section 3. Verified by
        ``tests/kernels/test_tuning.py``.
    """
    check_positive_int("calls", calls)
    problem = Problem(batch, tokens, width, num_heads, dtype)
    subjects = SUBJECTS if subjects is None else subjects
    for name in subjects:
        check_choice("subjects", name, tuple(SUBJECTS))
    device = jax.devices()[0].device_kind
    if not (available() or interpret):
        return TunedPlan(Plan.twins(), (), problem, device)
    fields, table = {}, []
    for name, subject in reported(subjects.items(), progress, lambda kv: kv[0]):
        bench = _Bench(subject, problem, calls, interpret)
        pick = functools.partial(
            choose, dtype=problem.dtype, repeats=repeats, clock=clock
        )
        best, rows = _tune_one(name, bench, pick)
        fields |= {name: best[0], f"{name}_backward": best[1]}
        table += rows
    return TunedPlan(Plan(**fields), tuple(table), problem, device)


def _tune_one(name: str, bench: "_Bench", pick: Callable[..., KernelChoice]):
    """Returns (tile, backward) for one kernel, and two tables of timings."""
    offered = bench.subject.candidates(bench.problem)
    pairs = [(None, None), *((tile, None) for tile in offered["tile"])]
    forward = pick(pairs, bench.value, exact=bench.exact[0])
    rows = [(f"{name}.forward", _per_call(forward, bench.calls))]
    kernels = [row for row in forward.table if isinstance(row.candidate[0], Tile)]
    timed = {row.seconds: row.candidate[0] for row in reversed(kernels) if row.seconds}
    whole = [(None, None)] + ([("cudnn", None)] if name == "attention" else [])
    if timed:
        tile = timed[min(timed)]
        whole += [(tile, backward) for backward in (None, *offered["backward"])]
    both = pick(whole, bench.value_and_gradient, exact=bench.exact)
    return both.best, [*rows, (f"{name}.both", _per_call(both, bench.calls))]


def _per_call(choice: KernelChoice, calls: int) -> tuple[KernelTiming, ...]:
    return tuple(
        row
        if row.seconds is None
        else dataclasses.replace(row, seconds=row.seconds / calls)
        for row in choice.table
    )


class _Bench:
    """Inputs and expected outputs of one kernel, and programs that repeat it."""

    def __init__(
        self, subject: TuningSubject, problem: Problem, calls: int, interpret: bool
    ):
        self.subject, self.problem, self.calls = subject, problem, calls
        self._interpret = interpret
        shapes = tuple(subject.shapes(problem))
        keys = jax.random.split(jax.random.key(0), len(shapes) + 1)
        self._inputs = [
            _draw(key, shape, problem.dtype)
            for key, shape in zip(keys[1:], shapes, strict=True)
        ]
        wide = jnp.promote_types(problem.dtype, jnp.result_type(float))
        inputs = [array.astype(wide) for array in self._inputs]
        out = jax.eval_shape(self._function((None, None)), *self._inputs)
        self._cotangent = jax.random.normal(keys[0], out.shape).astype(out.dtype)
        with jax.default_matmul_precision("highest"):
            both = jax.jit(self._both((None, None)))
            self.exact = both(inputs, self._cotangent.astype(wide))

    def _function(self, candidate: tuple[Any, Any]) -> Callable[..., jax.Array]:
        tile, backward = candidate
        return functools.partial(
            self.subject.function(self.problem),
            tile=tile,
            backward=backward,
            interpret=self._interpret,
        )

    def _both(self, candidate):
        def both(inputs, cotangent):
            value, pull = jax.vjp(self._function(candidate), *inputs)
            return value, pull(cotangent)

        return both

    def value(self, candidate) -> Callable[[], Any]:
        """Returns a call that repeats the kernel's value."""
        function = self._function(candidate)
        return self._repeated(lambda inputs, _: function(*inputs))

    def value_and_gradient(self, candidate) -> Callable[[], Any]:
        """Returns a call that repeats value and gradient in every input."""
        return self._repeated(self._both(candidate))

    def _repeated(self, function) -> Callable[[], Any]:
        options = COMPILER_OPTIONS.get(jax.default_backend())
        run = jax.jit(_repeated(function, self.calls), compiler_options=options)
        return lambda: run(self._inputs, self._cotangent)


def _repeated(function: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """Returns a program that calls a function repeatedly, for its last result."""

    def once(carry, _):
        inputs, cotangent, _ = carry
        # The barrier makes each call wait for the previous one, and prevents its
        # removal.
        return jax.lax.optimization_barrier(
            (inputs, cotangent, function(inputs, cotangent))
        ), None

    def program(inputs, cotangent):
        out = jax.eval_shape(function, inputs, cotangent)
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), out)
        carry = (inputs, cotangent, empty)
        return jax.lax.scan(once, carry, length=calls)[0][2]

    return program


def _draw(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Draws activations in the dtype, and float32 parameters scaled by fan-in."""
    if len(shape) == 3:
        return jax.random.normal(key, shape, jnp.float32).astype(dtype)
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * jax.random.normal(key, shape, jnp.float32)


__dir__ = shown(__name__)
