"""The best recurrent learner: step sizes, schedules and gates, by their exact risks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_nonnegative_int
from icltheory._core import calculator
from icltheory.regression._linalg import is_isotropic, seen_inverse
from icltheory.regression.drift import correlation, demonstration_moments, population_of
from icltheory.regression.measures import Optimum
from icltheory.regression.predictors.base import NoClosedForm
from icltheory.regression.recurrent import DeltaRule, GatedLinearAttention

RECURRENT = DeltaRule, GatedLinearAttention
_GRID, _ROUNDS = 17, 16  # a round divides the sides of the box by 4


def best_recurrent(family: Any, source: Any, num_examples: int) -> Optimum:
    r"""The best member of a family of step sizes, schedules or gates.

    For one task, H = h I and E w w' = m I the best schedule of the delta rule is

    .. math:: \beta_t = \frac{e}{h (d + 2) e + \sigma^2}, \qquad
        e \leftarrow (1 - h \beta_t)\, e, \qquad R = h d e + \sigma^2 ,

    from e = m. That of linear attention is the minimum of a quadratic.
    """
    check_nonnegative_int("num_examples", num_examples)
    family = family(None, None) if isinstance(family, type) else family
    family.check_source(source)
    if not isinstance(family.step_size, str):
        size, gate, least = _search(family, source, num_examples)
        why = "the end of nested grids of exact risks"
    elif isinstance(family, GatedLinearAttention):
        (size, least), gate = _best_weights(source, num_examples), 1.0
        why = "closed form: the minimum of a quadratic"
    else:
        _check_schedule(family, source)
        (size, least), gate = _best_schedule(source, num_examples), 1.0
        why = "closed form: the least error at every step"
    return Optimum(type(family)(size, gate), least, why)


@calculator(static=("num_examples",))
def _search(family, source, num_examples):
    p, _ = population_of(source)
    largest = jnp.linalg.eigvalsh(p.input_cov)[-1]
    tops = jnp.stack([2 / jnp.where(largest > 0, largest, 1), jnp.ones((), p.dtype)])
    fixed = family.step_size, family.gate

    def risk(size, gate):
        model = type(family)(jnp.broadcast_to(size, (num_examples,)), gate)
        return model.exact_risk(source, jnp.asarray(num_examples, p.dtype))

    def axis(i, centre, width):
        if fixed[i] is not None:
            return jnp.reshape(jnp.asarray(fixed[i], p.dtype), (1,))
        points = centre[i] + width * tops[i] * jnp.linspace(-0.5, 0.5, _GRID)
        return jnp.clip(points.astype(p.dtype), 0, tops[i])

    def zoom(centre, width):
        sizes, gates = axis(0, centre, width), axis(1, centre, width)
        found = jax.vmap(lambda s: jax.vmap(lambda g: risk(s, g))(gates))(sizes)
        i, j = jnp.unravel_index(jnp.nanargmin(found), found.shape)
        return jnp.stack([sizes[i], gates[j]]), None

    widths = jnp.asarray(0.25 ** np.arange(_ROUNDS), p.dtype)
    size, gate = jax.lax.stop_gradient(jax.lax.scan(zoom, tops / 2, widths)[0])
    return size, gate, risk(size, gate) + p.noise_var


@calculator(static=("num_examples",))
def _best_weights(source, num_examples):
    p, a = population_of(source)
    R = correlation(a, num_examples)
    first, second, own = demonstration_moments(p)
    A = second[0] * R[:-1, :-1] + second[1] + own * jnp.eye(num_examples, dtype=p.dtype)
    b = first[0] * R[-1, :-1] + first[1]
    omega = seen_inverse(A) @ b
    return omega, p.signal - jnp.sum(b * omega) + p.noise_var


def _check_schedule(family, source):
    """Raises unless the best schedule of the delta rule is known."""
    p, a = population_of(source)
    fits = a == 1 and is_isotropic(p.input_cov) and is_isotropic(p.second_moment)
    if not fits or family.gate not in (None, 1):
        raise NoClosedForm(
            "source: expected one task, isotropic inputs and tasks, and a gate of 1 "
            "for the best schedule; DeltaRule(None, None) has the best step and gate"
        )


@calculator(static=("num_examples",))
def _best_schedule(source, num_examples):
    p, _ = population_of(source)
    h, m = p.input_cov[0, 0], p.second_moment[0, 0]

    def step(e, _):
        bottom = h * (p.dim + 2) * e + p.noise_var
        beta = e / jnp.where(bottom > 0, bottom, 1)
        return (1 - h * beta) * e, beta

    e, sizes = jax.lax.scan(step, m, length=num_examples)
    return sizes, h * p.dim * e + p.noise_var
