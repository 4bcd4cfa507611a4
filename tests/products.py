"""Evaluates functions with matrix products rounded as an accelerator rounds them.

A GPU multiplies float32 matrices in a shorter format unless a program asks it not to:
TF32 keeps 10 bits of an operand's mantissa and bfloat16 keeps 7, and both add up in
float32. :func:`rounded` evaluates a function's jaxpr and rounds the operands of its
products in the same way, on any device; :func:`loosened` leaves the rounding to the
device by taking the precision off every product.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

TF32, BF16 = 10, 7
PRODUCTS = ("dot_general", "conv_general_dilated")
# Primitives that contain a jaxpr, which is evaluated in their place.
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2")
_CALLS += ("custom_vjp_call_jaxpr", "checkpoint", "core_call")
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def rounded(function: Callable[..., Any], bits: int, *, all_of_them: bool = False):
    """Returns the function with float32 operands of products rounded to ``bits``.

    A product that asks for the highest precision is left as it is, as a device leaves
    it, unless ``all_of_them`` is set.
    """

    def product(eqn, operands):
        if all_of_them or not asks_for_highest(eqn):
            operands = [_shorten(x, bits) for x in operands]
        return eqn.primitive.bind(*operands, **eqn.params)

    return _changed(function, product)


def loosened(function: Callable[..., Any]):
    """Returns the function with its products at the device's default precision."""

    def product(eqn, operands):
        params = eqn.params | {"precision": None}
        return eqn.primitive.bind(*operands, **params)

    return _changed(function, product)


def products(function: Callable[..., Any], *args: Any) -> list[Any]:
    """Returns all matrix products of a function, as equations of its jaxpr."""
    return list(_equations(jax.make_jaxpr(function)(*args).jaxpr))


def asks_for_highest(eqn: Any) -> bool:
    """Whether a product is set to the highest precision for both operands."""
    given = eqn.params.get("precision")
    pair = given if isinstance(given, tuple) else (given, given)
    return all(one == jax.lax.Precision.HIGHEST for one in pair)


def _shorten(x, bits):
    if x.dtype != jnp.float32:
        return x
    return jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=bits)


def _changed(function, product):
    """Evaluates the function's jaxpr with ``product`` in place of each product."""

    def evaluate(*args):
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        flat = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args), product)
        return jax.tree.unflatten(jax.tree.structure(shape), flat)

    return jax.jit(evaluate)


def _evaluate(jaxpr, consts, args, product):
    known: dict[Any, Any] = {}

    def read(atom):
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    def write(variables, values):
        known.update(zip(variables, values, strict=True))

    write([*jaxpr.constvars, *jaxpr.invars], [*consts, *args])
    for eqn in jaxpr.eqns:
        values = [read(atom) for atom in eqn.invars]
        found = _apply(eqn, values, product)
        write(eqn.outvars, found if eqn.primitive.multiple_results else [found])
    return [read(atom) for atom in jaxpr.outvars]


def _apply(eqn, values, product):
    name, params = eqn.primitive.name, eqn.params
    if name in PRODUCTS:
        return product(eqn, values)
    if name in _CALLS:
        body = next(params[key] for key in _BODIES if key in params)
        return _body(body, product)(*values)
    if name == "scan":
        return _scan(params, values, product)
    if name == "while":
        return _while(params, values, product)
    if name == "cond":
        branches = [_body(branch, product) for branch in params["branches"]]
        return jax.lax.switch(values[0], branches, *values[1:])
    return eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))


def _body(closed, product):
    """Returns a jaxpr, closed or open, as a function that returns a list."""
    jaxpr = closed.jaxpr if hasattr(closed, "consts") else closed
    consts = getattr(closed, "consts", ())
    return lambda *args: _evaluate(jaxpr, consts, args, product)


def _scan(params, values, product):
    step = _body(params["jaxpr"], product)
    if "ft_in" in params:  # from jax 0.12 on
        consts, carried, _ = (len(group) for group in params["ft_in"].unpack())
    else:
        consts, carried = params["num_consts"], params["num_carry"]
    fixed, state, rows = _split(values, consts, carried)

    def body(state, rows):
        state, rows = _split(step(*fixed, *state, *rows), carried)
        return state, rows

    state, rows = jax.lax.scan(
        body, state, rows, length=params["length"], reverse=params["reverse"]
    )
    return [*state, *rows]


def _while(params, values, product):
    counts = params["cond_nconsts"], params["body_nconsts"]
    for_test, for_step, state = _split(values, *counts)
    test = _body(params["cond_jaxpr"], product)
    step = _body(params["body_jaxpr"], product)
    return jax.lax.while_loop(
        lambda state: test(*for_test, *state)[0],
        lambda state: step(*for_step, *state),
        state,
    )


def _split(values, *sizes):
    """Splits a list into parts of the given sizes and a last part with the rest."""
    parts, start = [], 0
    for size in sizes:
        parts.append(list(values[start : start + size]))
        start += size
    return [*parts, list(values[start:])]


def _equations(jaxpr):
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in PRODUCTS:
            yield eqn
        for value in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)
