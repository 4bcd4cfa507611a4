"""Gradient descent in one ``lax.scan``, which records the parameters periodically."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax

from icltheory._checks import check_positive_int, wrong
from icltheory._typing import Array, Int


@runtime_checkable
class Rule(Protocol):
    """An update rule with optax's interface; ``update`` returns the change to add."""

    init: Any
    update: Any


class PlainRule(NamedTuple):
    """Gradient descent with a constant step size, which may be traced.

    Attributes:
        step_size: eta.
    """

    step_size: Any

    def init(self, params: Any) -> tuple[()]:
        """Returns an empty state."""
        return ()

    def update(self, grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        """Minus eta times the gradient."""
        return jax.tree.map(lambda g: -self.step_size * g, grads), state


class Descent(NamedTuple):
    """Parameters recorded along gradient descent.

    Attributes:
        steps: Steps taken at each record, from 0 on, ``(T,)``.
        params: Parameters there, a leading axis T on every leaf.
        losses: What ``slope`` returned beside the gradient before each step, with a
            leading axis of all steps.
    """

    steps: Int[Array, "T"]
    params: Any
    losses: Any


def descend(
    slope: Callable[[Any, Int[Array, ""]], tuple[Any, Any]],
    params: Any,
    rule: Rule,
    num_steps: int,
    record_every: int,
) -> Descent:
    """Takes ``num_steps`` steps and records the parameters every ``record_every``.

    ``slope(params, k)`` returns the loss, or nothing, and the gradient at step k. What
    is random in it comes from a key folded with k, so that a path does not depend on
    how often it is recorded. The caller jits.
    """

    def step(carry, k):
        params, state = carry
        loss, grads = slope(params, k)
        updates, state = rule.update(grads, state, params)
        return (jax.tree.map(jnp.add, params, updates), state), loss

    def chunk(carry, first):
        carry, losses = lax.scan(step, carry, first + jnp.arange(record_every))
        return carry, (carry[0], losses)

    starts = jnp.arange(0, num_steps, record_every)
    _, (kept, losses) = lax.scan(chunk, (params, rule.init(params)), starts)
    return Descent(
        jnp.arange(0, num_steps + 1, record_every),
        jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), params, kept),
        jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), losses),
    )


def check_steps(num_steps: Any, record_every: Any) -> None:
    """Raises unless both are positive integers and the second divides the first."""
    check_positive_int("num_steps", num_steps)
    check_positive_int("record_every", record_every)
    if num_steps % record_every:
        expected = f"a multiple of record_every = {record_every}"
        raise wrong("num_steps", expected, num_steps)
