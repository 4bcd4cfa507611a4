"""Predictions with and without chain of thought, and the model's attention."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._noted import check_count, check_range
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Int, Scalar
from icltheory.chain_of_thought._memory import (
    chain_columns,
    compact,
    direct_columns,
    query_column,
)
from icltheory.chain_of_thought.attention import ReasoningAttention
from icltheory.chain_of_thought.prompts import ReasoningPrompt

__all__ = ["AttentionMasses", "Inference", "attention_masses", "cot_infer", "icl_infer"]


@pytree
class Inference:
    r"""Predictions of a model, step by step or in one step.

    Attributes:
        outputs: States :math:`v_1, \dots, v_K` of a chain of thought; the one final
            answer of plain in-context learning.
        wrong: Whether each is not the correct state z_k; of plain in-context learning
            whether :math:`v \ne z_K`.

    Source: Li et al. (2025), arXiv 2410.02167, CoT and ICL generalization error.
    """

    outputs: Int[Array, "*B S"]
    wrong: Bool[Array, "*B S"]

    @property
    def mean_error(self) -> Float[Array, "*B"]:
        """Share of wrong steps, the error of the paper."""
        return jnp.mean(self.wrong, axis=-1, dtype=jnp.result_type(float))

    @property
    def final_error(self) -> Bool[Array, "*B"]:
        """Whether the final answer is wrong."""
        return self.wrong[..., -1]


@calculator
def cot_infer(
    model: ReasoningAttention,
    prompt: ReasoningPrompt,
    num_examples: Real[ArrayLike, ""] | None = None,
) -> Inference:
    r"""Chain of thought: each answer is appended to the prompt and is the next query.

    .. math:: v_k = \operatorname{argmin}_{u \in \mu'} \lVert f(\Psi; P_k) - u
              \rVert^2, \qquad P_{k+1} = \bigl( P_k,\, (v_{k-1}; v_k),\,
              (v_k; 0) \bigr), \quad v_0 = z_0 .

    One scan over the steps. The columns are never built: without noise only the number
    of examples of each kind matters, and a step costs O(M'^2 K + M' d + d^2) once they
    are counted; with noise it costs O(l K (M' + d) + d^2).

    Args:
        model: The weights.
        prompt: One prompt; batches by ``vmap``.
        num_examples: Shows only so many of the examples, at least 1; may be traced, so
            that all lengths share a program. A traced number that is out of range is
            not reported.

    Returns:
        K answers and which are wrong. Error of the paper:
        :math:`\frac{1}{K} \sum_k 1[z_k \ne v_k]`; the slides of a talk have an equals
        sign there.

    Example:
        >>> from icltheory.chain_of_thought import (
        ...     ReasoningTask, faithful_transitions, matching_attention,
        ...     training_alphabet)
        >>> letters = training_alphabet(jax.random.key(0), 2, 2, 4)
        >>> task = ReasoningTask(letters, faithful_transitions(1.0))
        >>> prompt = task.sample(jax.random.key(1), 5, 1.0)
        >>> cot_infer(matching_attention(4), prompt).wrong.tolist()
        [False, False]

    Source: Li et al. (2025), arXiv 2410.02167, CoT inference.
    """
    alphabet = prompt.alphabet
    model.check_dim(alphabet)
    examples = chain_columns(prompt, _limit(prompt, num_examples))

    def answer(carry, k):
        memory, state = carry
        query = query_column(prompt, state, k)
        found = alphabet.nearest(model.output(memory, alphabet, query))
        found = found.astype(state.dtype)
        return (memory.joined(state, found, k), found), found

    start = compact(examples, alphabet), prompt.query_states[0]
    _, outputs = lax.scan(answer, start, jnp.arange(prompt.num_steps))
    return Inference(outputs, outputs != prompt.query_states[1:])


@calculator
def icl_infer(
    model: ReasoningAttention,
    prompt: ReasoningPrompt,
    num_examples: Real[ArrayLike, ""] | None = None,
) -> Inference:
    r"""Plain in-context learning: one answer from inputs and final outputs.

    .. math:: E_i = \begin{pmatrix} x_i & 0 & \cdots & 0 \\
              y_{i,K} & 0 & \cdots & 0 \end{pmatrix},

    with the codes of all K columns, and the query with that of the first step.

    Args:
        model: The weights.
        prompt: One prompt; batches by ``vmap``.
        num_examples: Shows only so many of the examples, at least 1; may be traced. A
            traced number that is out of range is not reported.

    Returns:
        One answer, and whether it is not :math:`z_K`.

    Example:
        >>> from icltheory.chain_of_thought import (
        ...     ReasoningTask, faithful_transitions, matching_attention,
        ...     training_alphabet)
        >>> letters = training_alphabet(jax.random.key(0), 2, 2, 4)
        >>> task = ReasoningTask(letters, faithful_transitions(1.0))
        >>> prompt = task.sample(jax.random.key(1), 5, 1.0)
        >>> icl_infer(matching_attention(4), prompt).wrong.tolist()
        [False]

    Source: Li et al. (2025), arXiv 2410.02167, ICL inference.
    """
    alphabet = prompt.alphabet
    model.check_dim(alphabet)
    examples = direct_columns(prompt, _limit(prompt, num_examples))
    query = query_column(prompt, prompt.query_states[0], jnp.asarray(0))
    memory = compact(examples, alphabet)
    found = alphabet.nearest(model.output(memory, alphabet, query))[None]
    return Inference(found, found != prompt.query_states[-1:])


class AttentionMasses(NamedTuple):
    """Attention on the examples in four classes, as in Figure 20; they sum to 1.

    Attributes:
        same_step_same_input: Columns of the query's step, of examples whose state
            before that step is the query's.
        other_step_same_input: The other columns of those examples.
        same_step_other_input: Columns of the query's step of the other examples.
        other_step_other_input: The rest.

    Source: Li et al. (2025), arXiv 2410.02167, Figure 20.
    """

    same_step_same_input: Scalar
    other_step_same_input: Scalar
    same_step_other_input: Scalar
    other_step_other_input: Scalar


@calculator
def attention_masses(
    model: ReasoningAttention, prompt: ReasoningPrompt
) -> AttentionMasses:
    r"""Attention masses along the correct path, averaged over steps.

    Whether the input is the same is judged for each example, whether the step is for
    each column: uniform attention has the masses :math:`\alpha'/K`,
    :math:`\alpha'(K-1)/K`, :math:`(1-\alpha')/K` and :math:`(1-\alpha')(K-1)/K` where a
    task keeps different starts apart. The query's own finished steps are left out.

    Args:
        model: The weights.
        prompt: One prompt; batches by ``vmap``.

    Returns:
        Four masses.

    Example:
        >>> from icltheory.chain_of_thought import (
        ...     initial_attention, sample_training_prompt, training_alphabet)
        >>> letters = training_alphabet(jax.random.key(0), 4, 2, 6)
        >>> prompt = sample_training_prompt(jax.random.key(1), letters, 5, 0.4)
        >>> masses = attention_masses(initial_attention(6), prompt)
        >>> round(float(sum(masses)), 5)
        1.0

    Source: Li et al. (2025), arXiv 2410.02167, Figure 20.
    """
    alphabet, columns = prompt.alphabet, chain_columns(prompt)
    model.check_dim(alphabet)

    def one(k):
        state = prompt.query_states[k]
        query = query_column(prompt, state, k)
        weights = columns.weights(alphabet, model.direction(query))
        alike = jnp.append(prompt.states[:, k] == state, False)
        alike, now = jnp.repeat(alike, prompt.num_steps), columns.step == k
        classes = (alike & now, alike & ~now, ~alike & now, ~alike & ~now)
        return AttentionMasses(*(jnp.sum(weights * each) for each in classes))

    each = jax.vmap(one)(jnp.arange(prompt.num_steps))
    return jax.tree.map(lambda mass: jnp.mean(mass), each)


def _limit(prompt, num_examples):
    """Returns the number of visible examples, checked."""
    l = prompt.num_examples
    if num_examples is not None:
        check_range("num_examples", num_examples, 1, l)
        check_count("num_examples", num_examples, 1)
    return num_examples
