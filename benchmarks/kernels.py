"""The kernel of causal attention beside cuDNN's and XLA's own code.

Command
    python -m benchmarks.kernels

One layer of the published model (64 prompts of 82 tokens, width 256, 8 heads,
bfloat16): the value, and value and gradient together as training runs them. A call is
repeated on the device within one program, since launching one from Python takes longer
than it runs. The error is the distance from XLA's code in float32. It needs a GPU; half
a minute.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, Skip, each
from icltheory.kernels import causal_attention

BATCH, TOKENS, WIDTH, HEADS, DTYPE = 64, 82, 256, 8, jnp.bfloat16
CALLS, REPEATS = 20, 50  # a GPU that idled during compilation is slow at first
ALTERNATIVES = {"XLA": "xla", "cuDNN": "cudnn"}


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures value and gradient of the kernel, beside both alternatives."""
    group = f"Attention, {BATCH} x {TOKENS} tokens, {HEADS} heads of {WIDTH // HEADS}"
    cases = [
        Case(f"{part}, beside {name}", 10, functools.partial(row, part, name))
        for part in ("value", "value and gradient")
        for name in ALTERNATIVES
    ]
    yield from each(group, budget, cases)


def row(part: str, name: str) -> BenchmarkRow:
    """Times the kernel and one alternative in turns."""
    if jax.default_backend() != "gpu":
        raise Skip("needs a GPU")
    keys = jax.random.split(jax.random.key(0))
    shapes = (BATCH, TOKENS, 3 * WIDTH), (BATCH, TOKENS, WIDTH)
    drawn = [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]
    inputs = [array.astype(DTYPE) for array in drawn]
    run = functools.partial(call, gradient=part != "value")
    ours = repeated(functools.partial(run, implementation="pallas"))
    other = repeated(functools.partial(run, implementation=ALTERNATIVES[name]))
    with jax.default_matmul_precision("highest"):
        wide = [array.astype(jnp.float32) for array in inputs]
        exact = jax.jit(functools.partial(run, implementation="xla"))(*wide)
    error = max(
        _measure.disagreement(a, b) for a, b in zip(ours(*inputs), exact, strict=True)
    )
    times = _measure.in_turns(
        lambda: ours(*inputs), lambda: other(*inputs), repeats=REPEATS
    )
    return BenchmarkRow(
        ours_s=times[0] / CALLS,
        alternative=name,
        alternative_s=times[1] / CALLS,
        precision=jnp.dtype(DTYPE).name,
        error=error,
        tolerance=8 * float(jnp.finfo(DTYPE).eps),
    )


def call(
    qkv: jax.Array, d_out: jax.Array, *, gradient: bool, implementation: Any
) -> tuple[jax.Array, ...]:
    """Returns the output, and the gradient of its product with ``d_out``."""
    attend = functools.partial(
        causal_attention, num_heads=HEADS, implementation=implementation
    )
    if not gradient:
        return (attend(qkv),)
    value, pull = jax.vjp(attend, qkv)
    return value, *pull(d_out)


def repeated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a program that calls a function repeatedly, for its last result."""

    def once(carry, _):
        inputs, _ = carry
        # The barrier makes each call wait for the previous one, and prevents its
        # removal.
        return jax.lax.optimization_barrier((inputs, function(*inputs))), None

    @jax.jit
    def program(*inputs):
        out = jax.eval_shape(function, *inputs)
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), out)
        return jax.lax.scan(once, (inputs, empty), length=CALLS)[0][1]

    return program


if __name__ == "__main__":
    _alone.main(measure)
