"""Trains pattern models on fresh prompts in one scan; gradients in closed form."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    Check,
    check_choice,
    check_key,
    check_nonnegative_int,
    check_positive_int,
    check_shape,
    checked,
    positive,
    scalar,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float, GradientForm, Int, PRNGKey, PyTree
from icltheory.layered import forward
from icltheory.patterns.measures import check_pattern_model
from icltheory.patterns.model import check_width
from icltheory.patterns.task import PatternPrompt, PatternTask
from icltheory.patterns.theorems import hinge
from icltheory.trajectory._descent import PlainRule, check_steps, descend

Number = float | int | Real[ArrayLike, ""]
_finite = Check(lambda x: x - x == 0, "finite losses (a smaller step_size)")


class Training(Record):
    """Parameters at several steps of training, and the loss of each batch before it."""

    steps: Int[Array, "*S T"]
    params: Any
    losses: Float[Array, "*S num_steps"]

    @property
    def last(self) -> Any:
        """Parameters at the end of training; stacked if trainings are stacked."""
        axis = self.steps.ndim - 1
        return jax.tree.map(lambda leaf: jnp.take(leaf, -1, axis), self.params)


def train(
    model: Any,
    task: PatternTask,
    params: PyTree,
    num_steps: int,
    *,
    key: PRNGKey,
    step_size: Number | None = None,
    rule: Any = None,
    batch_size: int = 128,
    num_examples: int = 20,
    record_every: int = 1,
) -> Training:
    r"""Stochastic gradient descent on the hinge loss of fresh prompts, equation (8).

    .. math:: \Psi_{t+1} = \Psi_t - \frac{\eta}{B} \nabla \sum_{n=1}^{B}
        \bigl[ 1 - z^n F(\Psi_t; P^n) \bigr]_+ .

    Step t draws its prompts from the key folded with t. Compiled once for each model,
    rule and sizes; task (with its alpha), start, key and eta are traced, so that an
    ensemble over seeds or settings is a ``vmap`` of this function.

    Args:
        model: A layered model with ``fixed``, the names of parameters to leave alone.
        num_steps: Number T of steps; a multiple of ``record_every``.
        step_size: eta; this or ``rule``.
        rule: An update rule as optax has it, such as ``optax.adam(1e-3)``; pass the
            same object again to compile once.
        num_examples: Contexts l_tr of a prompt.

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task, model = PatternTask(4, 4, 3.0), PatternTransformer(8)
        >>> start = model.init(task, key=jax.random.key(0))
        >>> path = train(model, task, start, 4, key=jax.random.key(1), step_size=1.0,
        ...              batch_size=8, num_examples=10, record_every=2)
        >>> path.steps.tolist(), path.params["W_O"].shape, path.losses.shape
        ([0, 2, 4], (3, 8, 16), (4,))

    Source: Li et al. (2024), equation (8).
    """
    check_key("key", key)
    check_pattern_model(model)
    check_width(params, task.width, "task")
    check_steps(num_steps, record_every)
    check_positive_int("batch_size", batch_size)
    check_nonnegative_int("num_examples", num_examples)
    if (step_size is None) == (rule is None):
        got = "neither" if rule is None else "both"
        raise ValueError(f"step_size, rule: expected exactly one of them, got {got}")
    if step_size is not None:
        step_size = checked("step_size", step_size, scalar & positive)
        step_size = jnp.asarray(step_size, task.dtype)
    sizes = (num_steps, record_every, batch_size, num_examples)
    with jax.numpy_dtype_promotion("standard"):
        path = _train(model, rule, sizes, task, params, key, step_size)
    checked("losses", path.losses, _finite)
    return path


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _train(model, rule, sizes, task, params, key, step_size) -> Training:
    num_steps, record_every, batch_size, num_examples = sizes
    held = {name: params[name] for name in model.fixed}
    free = {name: leaf for name, leaf in params.items() if name not in held}

    def loss(free, prompt):
        return jnp.mean(hinge(prompt.z * forward(model, free | held, prompt)))

    def slope(free, t):
        prompt = task.sample(jax.random.fold_in(key, t), num_examples, batch_size)
        return jax.value_and_grad(loss)(free, prompt)

    rule = PlainRule(step_size) if rule is None else rule
    path = descend(slope, free, rule, num_steps, record_every)
    again = {
        name: jnp.broadcast_to(leaf, path.steps.shape + jnp.shape(leaf))
        for name, leaf in held.items()
    }
    return Training(path.steps, path.params | again, path.losses)


@calculator(static=("form", "query_is_key"))
def loss_gradients(
    params: dict[str, Any],
    prompt: PatternPrompt,
    *,
    form: GradientForm = "correct",
    query_is_key: bool = False,
) -> dict[str, Array]:
    r"""Gradients of the mean hinge loss in the four matrices, in closed form.

    With attention sigma_s, :math:`\bar p = \sum_s \sigma_s p_s`, the active neurons
    :math:`1_i = 1[(W_O)_i W_V \bar p \ge 0]` and
    :math:`u = \sum_i a_i 1_i (W_O)_i`, the gradients of one prompt with z F < 1 are

    .. math:: \partial W_Q &= -z \sum_s \sigma_s (u^\top W_V p_s)
        \bigl( W_K p_s - \textstyle\sum_r \sigma_r W_K p_r \bigr) p_{query}^\top , \\
        \partial W_K &= -z \sum_s \sigma_s (u^\top W_V p_s)\, W_Q p_{query}\,
        (p_s - \bar p)^\top , \\
        \partial W_V &= -z\, u\, \bar p^\top , \qquad
        \partial (W_O)_i = -z\, a_i 1_i\, (W_V \bar p)^\top ,

    and 0 otherwise. The slides print the transpose of W_Q in the second line, leave out
    the condition z F < 1 and let s run to l + 1, so that the query is a key; equation
    (7) has the l contexts only. ``form="printed"`` has the first two of these,
    ``query_is_key=True`` the third.

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(task, key=jax.random.key(0))
        >>> found = loss_gradients(params, task.sample(jax.random.key(1), 20, 5))
        >>> sorted(found), found["W_O"].shape
        (['W_K', 'W_O', 'W_Q', 'W_V'], (64, 60))

    Source: Li et al. (2024), slides on the proof of Theorem 1.
    """
    check_choice("form", form, ("correct", "printed"))
    P, P_query, z = prompt.P, prompt.P_query, prompt.z
    check_shape("prompt.P", P, ("B", "l", "D"))
    check_width(params, P.shape[-1], "prompt")
    W_Q, W_K, W_V, W_O, a = (params[n] for n in ("W_Q", "W_K", "W_V", "W_O", "a"))
    keys = jnp.concatenate([P, P_query[:, None]], axis=1) if query_is_key else P
    query, K = P_query @ W_Q.T, keys @ W_K.T
    sigma = jax.nn.softmax(jnp.einsum("bsk,bk->bs", K, query), axis=-1)
    pooled = jnp.einsum("bs,bsd->bd", sigma, keys)
    value = pooled @ W_V.T
    inputs = value @ W_O.T
    weight = a[None] * (inputs >= 0)
    correct = form == "correct"
    enough = z * (jax.nn.relu(inputs) @ a) >= 1  # these prompts have zero loss
    sign = -jnp.where(enough & correct, 0, z) / len(z)
    u = weight @ W_O
    cost = sigma * jnp.einsum("bsd,bd->bs", keys @ W_V.T, u)
    moved_keys = K - jnp.einsum("bs,bsk->bk", sigma, K)[:, None]
    moved = keys - pooled[:, None]
    side = query if correct else P_query @ W_Q
    return {
        "W_Q": jnp.einsum("b,bs,bsk,bd->kd", sign, cost, moved_keys, P_query),
        "W_K": jnp.einsum("b,bs,bk,bsd->kd", sign, cost, side, moved),
        "W_V": jnp.einsum("b,bv,bd->vd", sign, u, pooled),
        "W_O": jnp.einsum("b,bi,bv->iv", sign, weight, value),
    }
