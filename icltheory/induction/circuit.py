"""An induction circuit as the weights of two layers of softmax attention."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Integer, Real

from icltheory._checks import check_positive_int, check_shape, scalar
from icltheory._core import Record, calculator, exact_products
from icltheory._typing import Array, Float
from icltheory.attention import LayerOutput, SoftmaxAttentionStack
from icltheory.layered import LayeredStack


class InductionCircuit(Record):
    """A two-layer induction circuit, its token and position tables and its read-out."""

    stack: SoftmaxAttentionStack
    embedding: Float[Array, "V n"]
    positions: Float[Array, "T n"]
    unembedding: Float[Array, "V n"]

    @property
    def model(self) -> LayeredStack:
        """The causal layered model of the circuit's stack."""
        return LayeredStack.of(self.stack, mask="causal")

    def embed(self, tokens: Integer[ArrayLike, " P"]) -> LayerOutput:
        """The residual stream of a sequence; its last token is the query."""
        tokens = jnp.asarray(tokens)
        check_shape("tokens", tokens, ("T",))
        if len(tokens) > len(self.positions):
            raise ValueError(
                f"tokens: expected at most {len(self.positions)}, got {len(tokens)}"
            )
        rows = self.embedding[tokens] + self.positions[: len(tokens)]
        return LayerOutput(rows[:-1], rows[-1])

    @exact_products
    def logits(self, tokens: Integer[ArrayLike, " P"]) -> Float[Array, "P V"]:
        """Logits of the next token at every position."""
        out = self.stack.apply(*self.embed(tokens), "causal")
        rows = jnp.concatenate([out.H[-1], out.h_query[-1:]])
        return rows @ self.unembedding.T


@calculator(static=("vocab_size", "num_positions", "dtype"), strength=scalar)
def induction_circuit(
    vocab_size: int,
    num_positions: int,
    strength: Real[ArrayLike, ""] = 30.0,
    dtype: Any = None,
) -> InductionCircuit:
    r"""Builds weights that continue a repetition: previous-token and induction head.

    The residual stream has slots for the token, its position, the token before, and the
    answer. Layer 1 attends from position t to t - 1 and writes the token found there
    into the slot of the token before; layer 2 attends from token t to positions whose
    token before is the same, and writes their token into the answer:

    .. math::
        A^{(1)}_{t, t-1} \to 1 , \qquad
        A^{(2)}_{t, j+1} \to 1 / |\{j < t : \mathrm{tok}_j = \mathrm{tok}_t\}| .

    Position 0 has no token before and reads itself; the keys of layer 2 leave it out.
    Width 3 V + T for V tokens and sequences of at most T.

    ``strength`` is the logit c of a match; all others have 0, and weights leak like
    :math:`T e^{-c}`.

    Example:
        >>> logits = induction_circuit(4, 8).logits(jnp.array([2, 0, 3, 2]))
        >>> logits.argmax(axis=1)[-1].tolist()
        0

    Source: Olsson et al. (2022), the mechanism of induction heads.
    """
    check_positive_int("vocab_size", vocab_size)
    check_positive_int("num_positions", num_positions)
    V, T = vocab_size, num_positions
    I = jnp.eye(3 * V + T, dtype=jnp.result_type(float) if dtype is None else dtype)
    token, place, before, answer = jnp.split(I, [V, V + T, 2 * V + T])
    # Query t attends to position t - 1 by e_{t-1} e_t^T in the position slots.
    shift = place[:-1].T @ place[1:]
    # The keys of layer 2 are in the token slots, where the query's token is.
    key = token.T @ before - jnp.sum(token, axis=0)[:, None] * place[:1]
    stack = SoftmaxAttentionStack(
        W_V=jnp.stack([before.T @ token, answer.T @ token]),
        W_K=jnp.stack([place.T @ place, key]),
        W_Q=jnp.stack([strength * shift, strength * token.T @ token]),
        d_scale=1,
    )
    return InductionCircuit(stack, token, place, answer)
