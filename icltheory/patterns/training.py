"""Trains pattern models on fresh prompts in one scan, and scores them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    check_key,
    check_nonnegative_int,
    check_positive_int,
    check_shape,
)
from icltheory._descent import PlainRule, check_steps, descend
from icltheory._noted import check_positive, check_values
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Int, PRNGKey, PyTree
from icltheory.layered import forward
from icltheory.patterns._attention import check_width
from icltheory.patterns._draw import check_fraction
from icltheory.patterns.closed_forms import hinge
from icltheory.patterns.prompts import PatternPrompt
from icltheory.patterns.task import PatternTask

__all__ = ["Scores", "Training", "scores", "train"]

Number = float | int | Real[ArrayLike, ""]


@pytree
class Training:
    """Parameters at several steps of training.

    Args:
        steps: Steps taken at each record, from 0 on, ``(T,)``.
        params: Parameters there, with a leading axis T on every leaf.
        losses: Hinge loss of each batch before its step, ``(num_steps,)``.

    Returns:
        A frozen pytree; ``last`` are the parameters at the end of one training.

    Example:
        >>> import jax.numpy as jnp
        >>> path = Training(jnp.arange(2), {"w": jnp.array([0.5, 1.0])}, jnp.ones(1))
        >>> float(path.last["w"])
        1.0

    Source: Li et al. (2024), model training.
    """

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
    relevant_fraction: Number = 0.8,
    record_every: int = 1,
) -> Training:
    r"""Stochastic gradient descent on the hinge loss of fresh prompts, equation (8).

    .. math:: \Psi_{t+1} = \Psi_t - \frac{\eta}{B} \nabla \sum_{n=1}^{B}
        \bigl[ 1 - z^n F(\Psi_t; P^n) \bigr]_+ .

    Step t draws its prompts from the key folded with t. Compiled once for each model,
    rule and sizes; task, start, key, eta and alpha are traced, so that an ensemble over
    seeds or settings is a ``vmap`` of this function.

    Args:
        model: A layered model with ``fixed``, the names of parameters to leave alone.
        task: Task to train on, with its set of training tasks.
        params: The start.
        num_steps: Number T of steps; a multiple of ``record_every``.
        key: Random key of the prompts.
        step_size: eta; this or ``rule``.
        rule: An update rule as optax has it, such as one ``optax.adam(1e-3)``; pass the
            same object again to compile once.
        batch_size: Prompts B a step.
        num_examples: Contexts l_tr of a prompt.
        relevant_fraction: alpha.
        record_every: Steps between two records.

    Returns:
        The parameters along training.

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task, model = PatternTask(4, 4, 3.0), PatternTransformer(8)
        >>> start = model.init(jax.random.key(0), task)
        >>> path = train(model, task, start, 4, key=jax.random.key(1), step_size=1.0,
        ...              batch_size=8, num_examples=10, record_every=2)
        >>> path.steps.tolist(), path.params["W_O"].shape, path.losses.shape
        ([0, 2, 4], (3, 8, 16), (4,))

    Source: Li et al. (2024), equation (8).
    """
    check_key("key", key)
    _check_model(model)
    check_width(params, task.width, "task")
    check_steps(num_steps, record_every)
    check_positive_int("batch_size", batch_size)
    check_nonnegative_int("num_examples", num_examples)
    check_fraction(relevant_fraction, task.num_relevant)
    if (step_size is None) == (rule is None):
        got = "neither" if rule is None else "both"
        raise ValueError(f"step_size, rule: expected exactly one of them, got {got}")
    if step_size is not None:
        check_shape("step_size", step_size, ())
        check_positive("step_size", step_size)
        step_size = jnp.asarray(step_size, task.dtype)
    sizes = (num_steps, record_every, batch_size, num_examples)
    given = task, params, key, step_size, relevant_fraction
    with jax.numpy_dtype_promotion("standard"):
        path = _train(model, rule, sizes, *given)
    check_values(
        "losses",
        path.losses,
        jnp.isfinite,
        "finite losses (a smaller step_size)",
        "NaN or infinity",
    )
    return path


def _check_model(model):
    if not (hasattr(model, "attention") and hasattr(model, "fixed")):
        expected = "a PatternTransformer or a DeepPatternTransformer"
        kind = type(model).__name__
        raise ValueError(f"model: expected {expected}, got {kind}")


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _train(model, rule, sizes, task, params, key, step_size, alpha) -> Training:
    num_steps, record_every, batch_size, num_examples = sizes
    held = {name: params[name] for name in model.fixed}
    free = {name: leaf for name, leaf in params.items() if name not in held}

    def loss(free, prompt):
        return jnp.mean(hinge(prompt.z * forward(model, free | held, prompt)))

    def slope(free, t):
        own = jax.random.fold_in(key, t)
        prompt = task.sample(own, batch_size, num_examples, alpha)
        return jax.value_and_grad(loss)(free, prompt)

    rule = PlainRule(step_size) if rule is None else rule
    path = descend(slope, free, rule, num_steps, record_every)
    again = {name: _repeat(leaf, path.steps) for name, leaf in held.items()}
    return Training(path.steps, path.params | again, path.losses)


def _repeat(leaf, steps):
    return jnp.broadcast_to(leaf, steps.shape + leaf.shape)


@pytree
class Scores:
    """Margins and attention of a model on a batch of prompts.

    Args:
        margins: z F of each prompt, ``(B,)``.
        masses: Attention on contexts that share the query's pattern, in every layer,
            ``(L, B)``.
        agreements: Attention-weighted labels of the contexts times z, in every layer,
            ``(L, B)``: +1 where all attention is on the query's label.
        missed: Whether no context shares the query's pattern, ``(B,)``.
        feasible: Whether the patterns of the prompt exist as asked for, ``(B,)``.

    Returns:
        A frozen pytree; stacks of it come from ``jax.vmap``.

    Example:
        >>> import jax.numpy as jnp
        >>> no = jnp.zeros(2, bool)
        >>> full = jnp.ones((1, 2))
        >>> got = Scores(jnp.array([0.5, 2.0]), full, full, no, ~no)
        >>> float(got.hinge), float(got.error), float(got.margin)
        (0.25, 0.0, 1.25)

    Source: Li et al. (2024), equations (9) and (10).
    """

    margins: Float[Array, "*S B"]
    masses: Float[Array, "*S L B"]
    agreements: Float[Array, "*S L B"]
    missed: Bool[Array, "*S B"]
    feasible: Bool[Array, "*S B"]

    @property
    def hinge(self) -> Float[Array, "*S"]:
        """Mean hinge loss, the generalisation error of the theorems."""
        return jnp.mean(hinge(self.margins), axis=-1)

    @property
    def error(self) -> Float[Array, "*S"]:
        """0-1 error: share of prompts without z F > 0; NaN counts as an error."""
        return jnp.mean((~(self.margins > 0)).astype(self.margins.dtype), axis=-1)

    @property
    def margin(self) -> Float[Array, "*S"]:
        """Mean margin."""
        return jnp.mean(self.margins, axis=-1)

    @property
    def attention_mass(self) -> Float[Array, "*S L"]:
        """Mean attention to contexts that share the query's pattern (Proposition 1)."""
        return jnp.mean(self.masses, axis=-1)

    @property
    def agreement(self) -> Float[Array, "*S L"]:
        """Mean agreement A of the labels attended to, for :func:`gain_ratio`."""
        return jnp.mean(self.agreements, axis=-1)

    @property
    def miss_rate(self) -> Float[Array, "*S"]:
        """Share of prompts without a context that shares the query's pattern."""
        return jnp.mean(self.missed.astype(self.margins.dtype), axis=-1)


def scores(model: Any, params: PyTree, prompt: PatternPrompt) -> Scores:
    """Computes margins and attention of a model on a batch of prompts.

    Args:
        model: A layered model with ``attention``, as both of this package have it.
        params: Its parameters.
        prompt: The prompts, ``(B, ...)``.

    Returns:
        Entry by entry; means are properties.

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(jax.random.key(0), task)
        >>> prompt = task.sample(jax.random.key(1), 5, 20, 0.8)
        >>> got = scores(model, params, prompt)
        >>> got.margins.shape, got.masses.shape
        ((5,), (1, 5))

    Source: Li et al. (2024), Proposition 1 and Figure 9.
    """
    _check_model(model)
    check_width(params, prompt.P.shape[-1], "prompt")
    weights = model.attention(params, prompt)
    masses = jnp.sum(jnp.where(prompt.same[None], weights, 0), axis=-1)
    agreements = jnp.sum(weights * prompt.y[None], axis=-1) * prompt.z[None]
    margins = prompt.z * forward(model, params, prompt)
    return Scores(margins, masses, agreements, prompt.missed, prompt.feasible)
