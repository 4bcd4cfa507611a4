"""Trains the attention model by plain SGD on error-free prompts with squared loss."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._arguments import shown
from icltheory._checks import check_key, check_positive_int
from icltheory._descent import PlainRule, check_steps, descend
from icltheory._noted import check_nonnegative, check_range
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Int, PRNGKey, Scalar
from icltheory.chain_of_thought._memory import chain_columns, query_column
from icltheory.chain_of_thought.alphabet import Alphabet
from icltheory.chain_of_thought.attention import ReasoningAttention, initial_attention
from icltheory.chain_of_thought.prompts import (
    ReasoningPrompt,
    check_fraction,
    sample_training_prompt,
)

__all__ = ["ReasoningTraining", "prompt_loss", "train_attention"]


@pytree
class ReasoningTraining:
    """Parameters and losses during training.

    Attributes:
        iterations: Steps of descent done at each record, from 0 on, ``(T,)``.
        models: The model there, a leading axis T on every matrix.
        losses: Loss of the batch before each step, ``(num_iterations,)``.

    Source: Li et al. (2025), arXiv 2410.02167, Theorem 4.
    """

    iterations: Int[Array, "*B T"]
    models: ReasoningAttention
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
    query :math:`(z_{k-1}; 0)`.

    Args:
        model: The weights.
        prompt: One prompt.
        step: Number of the step, from 0; may be traced.

    Returns:
        The loss.

    Example:
        >>> from icltheory.chain_of_thought import training_alphabet
        >>> letters = training_alphabet(jax.random.key(0), 4, 2, 6)
        >>> prompt = sample_training_prompt(jax.random.key(1), letters, 5, 1.0)
        >>> bool(prompt_loss(initial_attention(6), prompt, 1) < 1)
        True

    Source: Li et al. (2025), arXiv 2410.02167, problem formulation.
    """
    alphabet, columns = prompt.alphabet, chain_columns(prompt)
    model.check_dim(prompt.alphabet)
    check_range("step", step, 0, prompt.num_steps - 1)
    if not jnp.issubdtype(jnp.asarray(step).dtype, jnp.integer):
        raise ValueError(f"step: expected an integer, got {shown(step)}")
    step = jnp.asarray(step)
    own = jnp.arange(len(columns.x)) - prompt.num_examples * prompt.num_steps
    columns = columns._replace(shown=own < step)
    query = query_column(prompt, prompt.query_states[step], step)
    answer = model.output(columns, alphabet, query)
    target = alphabet.patterns[prompt.query_states[step + 1]]
    return jnp.sum(jnp.square(target - answer)) / 2


def train_attention(
    alphabet: Alphabet,
    num_iterations: int,
    *,
    key: PRNGKey,
    batch_size: int = 64,
    num_examples: int = 20,
    relevant_fraction: Real[ArrayLike, ""] = 0.4,
    step_size: Real[ArrayLike, ""] = 3.0,
    scale: Real[ArrayLike, ""] = 0.2,
    record_every: int = 10,
) -> ReasoningTraining:
    r"""Trains W_Q and W_K by SGD on fresh prompts, as in Theorem 4.

    .. math:: W_{t+1} = W_t - \frac{\eta}{B} \sum_{n=1}^{B} \nabla_W
              \ell(\Psi_t; P^n, z^n), \qquad W \in \{W_Q, W_K\},

    from :math:`\delta I`, with :math:`W_V = [0 \; I]` fixed and the step k of every
    prompt uniform. One scan on the device; ensembles by ``vmap`` over keys and
    alphabets. Iteration t draws its prompts from the key folded with t.

    Args:
        alphabet: TRR patterns and codes.
        num_iterations: Steps T of descent, a multiple of ``record_every``.
        key: Random key.
        batch_size: Prompts B a step.
        num_examples: Examples :math:`l_{tr}` a prompt.
        relevant_fraction: alpha.
        step_size: eta.
        scale: delta.
        record_every: Steps between two records.

    Returns:
        The path of training.

    Example:
        >>> from icltheory.chain_of_thought import training_alphabet
        >>> letters = training_alphabet(jax.random.key(0), 4, 2, 6)
        >>> path = train_attention(letters, 20, key=jax.random.key(1), batch_size=4)
        >>> path.iterations.tolist(), path.losses.shape
        ([0, 10, 20], (20,))

    Source: Li et al. (2025), arXiv 2410.02167, equation (11) and Theorem 4.
    """
    check_key("key", key)
    check_positive_int("num_iterations", num_iterations)
    check_steps(num_iterations, record_every)
    check_positive_int("batch_size", batch_size)
    check_positive_int("num_examples", num_examples)
    check_fraction(relevant_fraction, alphabet.num_states)
    check_nonnegative("step_size", step_size)
    numbers = (relevant_fraction, step_size, scale)
    sizes = (num_iterations, batch_size, num_examples, record_every)
    return _train(alphabet, key, numbers, sizes)


@functools.partial(jax.jit, static_argnums=3)
def _train(alphabet, key, numbers, sizes):
    fraction, step_size, scale = numbers
    num_iterations, batch_size, num_examples, record_every = sizes
    start = initial_attention(alphabet.dim)
    W = jnp.asarray(scale, alphabet.patterns.dtype) * jnp.eye(
        2 * alphabet.dim, dtype=alphabet.patterns.dtype
    )

    def batch_loss(trained, draws):
        model = ReasoningAttention(start.W_V.astype(W.dtype), *trained)

        def one(own):
            prompts, steps = jax.random.split(own)
            prompt = sample_training_prompt(prompts, alphabet, num_examples, fraction)
            step = jax.random.randint(steps, (), 0, alphabet.num_steps)
            return prompt_loss(model, prompt, step)

        return jnp.mean(jax.vmap(one)(draws))

    def slope(trained, k):
        draws = jax.random.split(jax.random.fold_in(key, k), batch_size)
        return jax.value_and_grad(batch_loss)(trained, draws)

    rule = PlainRule(jnp.asarray(step_size, W.dtype))
    path = descend(slope, (W, W), rule, num_iterations, record_every)
    W_V = jnp.broadcast_to(
        start.W_V.astype(W.dtype), (len(path.steps), *start.W_V.shape)
    )
    models = jax.vmap(ReasoningAttention)(W_V, *path.params)
    return ReasoningTraining(path.steps, models, path.losses)
