"""The kernel of causal attention, and cuDNN's and XLA's own code. It needs a GPU.

One layer of the published model (64 prompts of 82 tokens, width 256, 8 heads,
bfloat16): the value, and value and gradient together as training runs them. A call is
repeated on the device within one program, since launching one from Python takes longer
than it runs. The difference is that from XLA's code in float32.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.suite import Pair, case, largest_error, on_gpu
from icltheory.kernels import causal_attention

BATCH, TOKENS, WIDTH, HEADS, DTYPE, CALLS = 64, 82, 256, 8, jnp.bfloat16, 20
GROUP = f"Attention, {BATCH} x {TOKENS} tokens, {HEADS} heads of {WIDTH // HEADS}"


@case(
    GROUP,
    {
        f"{part}, beside {name}": (part, name)
        for part in ("value", "value and gradient")
        for name in ("XLA", "cuDNN")
    },
)
def bench_attention(part: str, name: str) -> Pair:
    if not on_gpu():
        pytest.skip("needs a GPU")
    keys = jax.random.split(jax.random.key(0))
    shapes = (BATCH, TOKENS, 3 * WIDTH), (BATCH, TOKENS, WIDTH)
    drawn = [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]
    inputs = [array.astype(DTYPE) for array in drawn]
    run = functools.partial(call, gradient=part != "value")
    ours = repeated(functools.partial(run, implementation="pallas"))
    other = repeated(functools.partial(run, implementation=name.lower()))
    other(*inputs)
    with jax.default_matmul_precision("highest"):
        wide = [array.astype(jnp.float32) for array in inputs]
        exact = jax.jit(functools.partial(run, implementation="xla"))(*wide)
    return Pair(
        lambda: ours(*inputs),
        lambda: other(*inputs),
        name,
        per=CALLS,
        precision=jnp.dtype(DTYPE).name,
        error=lambda got, _: largest_error(got, exact),
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
