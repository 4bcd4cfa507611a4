"""Trains the attention model by plain SGD on error-free prompts with squared loss."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    check_key,
    check_positive_int,
    checked,
    count,
    nonnegative,
    one_line,
    scalar,
)
from icltheory._core import Record, where_valid
from icltheory._typing import Array, Float, Int, PRNGKey, Scalar
from icltheory.chain_of_thought.attention import (
    ReasoningAttention,
    chain_columns,
    query_column,
)
from icltheory.chain_of_thought.tasks import (
    PermutationTasks,
    ReasoningPrompt,
    ReasoningTask,
)
from icltheory.trajectory._descent import PlainRule, check_steps, descend


class ReasoningTraining(Record):
    """Models along training, from the start on, and the loss before each step."""

    iterations: Int[Array, "*B T"]
    models: ReasoningAttention  # a leading axis T on every matrix
    losses: Float[Array, "*B _"]

    @property
    def model(self) -> ReasoningAttention:
        """Model at the end of a single training run."""
        return jax.tree.map(lambda leaf: leaf[-1], self.models)


def prompt_loss(
    model: ReasoningAttention, prompt: ReasoningPrompt, step: Int[ArrayLike, ""]
) -> Scalar:
    r"""Squared loss of one step for a training prompt.

    .. math:: \ell = \tfrac12 \lVert z_k - f(\Psi; P) \rVert^2,

    for the prompt of l examples, the finished steps of the query before k, and the
    query :math:`(z_{k-1}; 0)`. Steps are numbered from 0; the number may be traced.

    Example:
        >>> from icltheory.chain_of_thought import Alphabet
        >>> tasks = PermutationTasks(Alphabet.standard(4, 2))
        >>> prompt = tasks.draw(jax.random.key(1), 5)
        >>> bool(prompt_loss(ReasoningAttention.initial(6), prompt, 1) < 1)
        True

    Source: Li et al. (2025), problem formulation.
    """
    alphabet, columns = prompt.alphabet, chain_columns(prompt)
    model.check_dim(alphabet)
    if not jnp.issubdtype(jnp.asarray(step).dtype, jnp.integer):
        raise ValueError(f"step: expected an integer, got {one_line(step)}")
    valid = count(0, prompt.num_steps - 1)("step", step)
    step = jnp.asarray(step)
    own = jnp.arange(len(columns.x)) - prompt.num_examples * prompt.num_steps
    columns = columns._replace(shown=own < step)
    query = query_column(alphabet, prompt.query_states[step], step)
    answer = model.output(columns, alphabet, query)
    target = alphabet.patterns[prompt.query_states[step + 1]]
    return where_valid(jnp.sum(jnp.square(target - answer)) / 2, valid)


def train_attention(
    model: ReasoningAttention,
    tasks: PermutationTasks | ReasoningTask,
    num_examples: int,
    num_iterations: int,
    *,
    key: PRNGKey,
    batch_size: int = 64,
    step_size: Real[ArrayLike, ""] = 3.0,
    record_every: int = 10,
) -> ReasoningTraining:
    r"""Trains W_Q and W_K by SGD on fresh prompts, as in Theorem 4.

    .. math:: W_{t+1} = W_t - \frac{\eta}{B} \sum_{n=1}^{B} \nabla_W
              \ell(\Psi_t; P^n, z^n), \qquad W \in \{W_Q, W_K\},

    with :math:`W_V` fixed and the step k of every prompt uniform. Iteration t draws its
    prompts from the key folded with t. Ensembles by ``vmap`` over keys and tasks.

    Args:
        model: The start, in Theorem 4 ``ReasoningAttention.initial(dim)``.
        num_iterations: Steps of descent, a multiple of ``record_every``.

    Example:
        >>> from icltheory.chain_of_thought import Alphabet
        >>> tasks = PermutationTasks(Alphabet.standard(4, 2), 0.4)
        >>> model, key = ReasoningAttention.initial(6), jax.random.key(1)
        >>> path = train_attention(model, tasks, 20, 20, key=key, batch_size=4)
        >>> path.iterations.tolist(), path.losses.shape
        ([0, 10, 20], (20,))

    Source: Li et al. (2025), equation (11) and Theorem 4.
    """
    check_key("key", key)
    check_positive_int("num_iterations", num_iterations)
    check_steps(num_iterations, record_every)
    check_positive_int("batch_size", batch_size)
    check_positive_int("num_examples", num_examples)
    step_size = checked("step_size", step_size, scalar & nonnegative)
    sizes = (num_iterations, batch_size, num_examples, record_every)
    return _train(model, tasks, key, step_size, sizes)


@functools.partial(jax.jit, static_argnums=4)
def _train(model, tasks, key, step_size, sizes):
    num_iterations, batch_size, num_examples, record_every = sizes
    dtype = tasks.alphabet.patterns.dtype
    W_V, *start = (W.astype(dtype) for W in (model.W_V, model.W_K, model.W_Q))

    def batch_loss(trained, draws):
        def one(own):
            prompts, steps = jax.random.split(own)
            prompt = tasks.draw(prompts, num_examples)
            step = jax.random.randint(steps, (), 0, tasks.num_steps)
            return prompt_loss(ReasoningAttention(W_V, *trained), prompt, step)

        return jnp.mean(jax.vmap(one)(draws))

    def slope(trained, k):
        draws = jax.random.split(jax.random.fold_in(key, k), batch_size)
        return jax.value_and_grad(batch_loss)(trained, draws)

    rule = PlainRule(jnp.asarray(step_size, dtype))
    path = descend(slope, tuple(start), rule, num_iterations, record_every)
    readers = jnp.broadcast_to(W_V, (len(path.steps), *W_V.shape))
    models = jax.vmap(ReasoningAttention)(readers, *path.params)
    return ReasoningTraining(path.steps, models, path.losses)
