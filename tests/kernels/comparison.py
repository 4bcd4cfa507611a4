"""Values and gradients of a kernel beside those of its twin and of float64 loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from tests.kernels.lowering import lowered_for_gpu

F32, F64, BF16 = jnp.float32, jnp.float64, jnp.bfloat16


def arrays(shapes, dtype, seed=0, weights=F32):
    """Random arrays: x and h in dtype, weights scaled by their fan-in."""
    rng, out = np.random.default_rng(seed), []
    for name, shape in shapes.items():
        value = rng.standard_normal(shape)
        if name.startswith("W"):
            value = value / shape[-2] ** 0.5
        kind = dtype if name in ("x", "h") else weights
        out.append(jnp.asarray(value.astype(kind)))
    return out


@functools.partial(jax.jit, static_argnums=(0, 1))
def pulled(function, choice, args, d):
    """Returns the value and every gradient of ``sum(d * function(*args))``."""
    y, pull = jax.vjp(functools.partial(function, **dict(choice)), *args)
    return [y, *pull(d)]


def cotangent(function, args, seed=7):
    y = jax.eval_shape(function, *args)
    values = np.random.default_rng(seed).standard_normal(y.shape)
    return jnp.asarray(values.astype(y.dtype))


def distance(got, want):
    """Largest difference over the largest entry, array by array."""
    pairs = [
        (np.asarray(g, np.float64), np.asarray(w, np.float64))
        for g, w in zip(got, want, strict=True)
    ]
    return max(float(np.abs(g - w).max() / np.abs(w).max()) for g, w in pairs)


def kernel(**choice):
    """Keywords of an interpreted kernel, hashable."""
    return tuple({**choice, "interpret": True}.items())


def gradients_of_blocks(function, args, choice, inputs=1):
    """Gradients of two models in one program, each of two rematerialised blocks.

    The first ``inputs`` arguments of the function are all the block's input.
    """
    args = [jnp.asarray(np.stack([a, 1.5 * np.asarray(a)])) for a in args]

    @jax.checkpoint
    def block(x, rest):
        return function(*[x] * inputs, *rest, **dict(choice))

    def loss(x, rest):
        out, _ = jax.lax.scan(lambda x, _: (block(x, rest), None), x, None, 2)
        return jnp.sum(jnp.sin(out))

    gradients = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))
    return jax.tree.leaves(gradients(args[0], args[inputs:]))


def assert_lowers_for_cuda(function, candidates, args):
    """The first candidates, with all kernels of the gradient."""
    choice = tuple((name, candidates[name][0]) for name in ("tile", "backward"))
    run = functools.partial(pulled, function, choice)
    text = lowered_for_gpu(run, args, cotangent(function, args))
    assert "weight_gradients" in text
    assert "totals" in text


def norm_oracle(x, scale, bias):
    """Layer norm of rows in float64, and its pull-back to x, scale and bias."""
    n = x.shape[1]
    mean = np.array([sum(row) / n for row in x])[:, None]
    spread = np.array([sum((row - m) ** 2) / n for row, m in zip(x, mean, strict=True)])
    rate = 1 / np.sqrt(spread + 1e-5)[:, None]

    def pull(d):
        dx = np.zeros_like(x)
        for r, row in enumerate(x):
            z = (row - mean[r]) * rate[r]
            jacobian = rate[r] * (np.eye(n) - 1 / n - np.outer(z, z) / n)
            dx[r] = jacobian @ (d[r] * scale)
        normal = (x - mean) * rate
        return dx, (d * normal).sum(0), d.sum(0)

    return (x - mean) * rate * scale + bias, pull
