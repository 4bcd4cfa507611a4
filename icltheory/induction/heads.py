"""Induction scores of heads, for any layered model with readable attention."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Integer

from icltheory._calculators import calculator
from icltheory._checks import check_finite, check_shape
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, PyTree
from icltheory.induction.scores import (
    copying_score,
    prefix_matching_score,
    prefix_targets,
    previous_token_score,
)
from icltheory.layered import LayeredModel, attention_patterns
from icltheory.layered.attention import check_readable

__all__ = ["HeadScores", "head_copying", "head_scores"]


@pytree
class HeadScores:
    """Induction scores of all heads of a model.

    Args:
        prefix_matching: Attention on what followed earlier occurrences,
            ``(layers, heads)``.
        previous_token: Attention on the token before, ``(layers, heads)``.
        uniform: Prefix-matching score of a head that attends to all tokens up to its
            own alike: what a head without a purpose has.

    Source: Olsson et al. (2022).
    """

    prefix_matching: Float[Array, "layers heads"]
    previous_token: Float[Array, "layers heads"]
    uniform: Float[Array, ""]


def head_scores(
    model: LayeredModel,
    params: PyTree,
    inputs: PyTree,
    tokens: Integer[ArrayLike, "..."],
    rows: Bool[ArrayLike, "..."] | None = None,
) -> HeadScores:
    """Prefix-matching and previous-token scores of every head.

    Args:
        model: The layered model.
        params: Its parameters.
        inputs: Its inputs.
        tokens: The number of the token at every position of them; where inputs are not
            tokens, numbers that are equal where they are.
        rows: Positions that may count for prefix matching.

    Returns:
        The scores.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.induction import induction_circuit
        >>> circuit, tokens = induction_circuit(3, 6), jnp.array([0, 1, 2, 0, 1, 2])
        >>> scores = head_scores(circuit.model, circuit.stack, circuit.embed(tokens),
        ...                      tokens)
        >>> scores.prefix_matching.ravel().round(3).tolist()
        [0.0, 1.0]

    Source: Olsson et al. (2022).
    """
    tokens = jnp.asarray(tokens)
    patterns = attention_patterns(model, params, inputs)
    check_shape("tokens", tokens, patterns[0].shape[:-3] + patterns[0].shape[-1:])
    heads = {pattern.shape[-3] for pattern in patterns}
    if len(heads) > 1:
        raise ValueError(f"model: expected as many heads in every layer, got {heads}")
    weights = jnp.stack([jnp.moveaxis(pattern, -3, 0) for pattern in patterns])

    def prefix(head):
        return prefix_matching_score(head, tokens, rows)

    T = tokens.shape[-1]
    place = jnp.arange(T)
    uniform = (place[None] <= place[:, None]) / (place[:, None] + 1)
    everywhere = jnp.broadcast_to(uniform, prefix_targets(tokens).shape)
    return HeadScores(
        prefix_matching=jax.vmap(jax.vmap(prefix))(weights),
        previous_token=jax.vmap(jax.vmap(previous_token_score))(weights),
        uniform=prefix_matching_score(everywhere, tokens, rows),
    )


@calculator
def head_copying(
    model: LayeredModel,
    params: PyTree,
    embedding: Float[ArrayLike, "_V _n"],
    unembedding: Float[ArrayLike, "_V _n"],
) -> Float[Array, "layers heads"]:
    r"""Copying score of every head, from the direct path of tokens to logits.

    The eigenvalues are those of the small matrix :math:`W_V W_E W_U W_O`: no matrix of
    the vocabulary's size is made. MLPs, other layers, biases and the division of norms
    are left out, as in the original.

    Args:
        model: The layered model.
        params: Its parameters.
        embedding: Tokens to residual stream, ``(V, n)``.
        unembedding: Residual stream to logits, ``(V, n)``.

    Returns:
        Scores in [-1, 1], ``(layers, heads)``.

    Example:
        >>> from icltheory.induction import induction_circuit
        >>> circuit = induction_circuit(3, 6)
        >>> maps = circuit.embedding, circuit.unembedding
        >>> head_copying(circuit.model, circuit.stack, *maps).round(6).ravel().tolist()
        [0.0, 1.0]

    Source: Olsson et al. (2022), copying by eigenvalues.
    """
    readable = check_readable(model)
    W_E, W_U = jnp.asarray(embedding), jnp.asarray(unembedding)
    check_shape("embedding", W_E, ("V", "n"))
    check_shape("unembedding", W_U, W_E.shape)
    check_finite("embedding", W_E)
    check_finite("unembedding", W_U)
    through = W_E.T @ W_U  # (n, n): residual stream to logits, and back as tokens
    rows = []
    for layer in range(model.num_layers):
        W_O, W_V = readable.ov_factors(layer, params)
        small = jnp.einsum("hdn,nm,hme->hde", W_V, through, W_O)
        rows.append(jnp.stack([copying_score(head) for head in small]))
    return jnp.stack(rows)
