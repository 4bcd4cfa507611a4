"""A linear attention stack with trainable weights, called like other models."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from icltheory._checks import check_positive_int
from icltheory.attention import LinearAttentionStack


class LinearStack(nn.Module):
    r"""Linear attention layers trained to predict y, the model of Theorem 1.

    .. math:: \hat y = s\, e_{d+1}^\top h_{N+1}^L, \qquad
              h_i^0 = (x_i, y_i), \quad h_{N+1}^0 = (x, 0),

    where the layers are those of :class:`icltheory.attention.LinearAttentionStack` with
    the mask ``"demos"`` and the factor 1/N on every attention sum. The parameters are
    ``W_V``, ``W_K`` and ``W_Q``, each ``(L, d + 1, d + 1)``. A prefix of k pairs is the
    same stack on k demonstrations: the others are zero tokens, which add nothing.
    ``module.apply({"params": params}, X, y, X_query=None)`` returns the prediction at
    every prefix, ``(B, P)``; ``method="predict"`` answers one query.

    In several layers of gradient descent the label slots of the demonstrations carry
    residuals, so that of the query carries minus the prediction: s = -1 (``residual``)
    is the read-out that can learn them; with s = 1 the same weights would have to grow
    the residuals. With the factor 1/k a single large example can make the output, a
    polynomial of degree (3^L - 1)/2 in the second moments, explode; ``num_examples``
    keeps one factor for all prefixes.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = LinearStack(dim=3, num_layers=2)
        >>> X, y = jnp.ones((5, 4, 3)), jnp.ones((5, 4))
        >>> params = model.init(jax.random.key(0), X, y)["params"]
        >>> model.apply({"params": params}, X, y).shape
        (5, 4)

    Source: Yao et al. 2024, equation (3); von Oswald et al. 2023; Ahn et al. 2023,
    Section 2 (the read-out).
    """

    dim: int
    num_layers: int = 1
    residual: bool = False
    num_examples: int | None = None
    init_std: float = 0.1
    param_dtype: Any = jnp.float32

    def setup(self):
        """Declares the weights."""
        check_positive_int("dim", self.dim)
        check_positive_int("num_layers", self.num_layers)
        if self.num_examples is not None:
            check_positive_int("num_examples", self.num_examples)
        n = self.dim + 1
        init = nn.initializers.normal(self.init_std)
        shape = (self.num_layers, n, n)
        self.W_V = self.param("W_V", init, shape, self.param_dtype)
        self.W_K = self.param("W_K", init, shape, self.param_dtype)
        self.W_Q = self.param("W_Q", init, shape, self.param_dtype)

    def stack(self) -> LinearAttentionStack:
        """The weights as a ``LinearAttentionStack``."""
        return LinearAttentionStack(self.W_V, self.W_K, self.W_Q)

    def __call__(
        self,
        X: Float[Array, "B P d"],
        y: Float[Array, "B P"],
        X_query: Float[Array, "B P d"] | None = None,
    ) -> Float[Array, "B P"]:
        """Predicts the label at every prefix."""
        queries = X if X_query is None else X_query
        k = jnp.arange(X.shape[1])

        def prefix(X, y, query, k):
            shown = (jnp.arange(len(y)) < k).astype(X.dtype)
            return self._answer(X * shown[:, None], y * shown, query, jnp.maximum(k, 1))

        prompt = jax.vmap(prefix, (None, None, 0, 0))
        return jax.vmap(prompt, (0, 0, 0, None))(X, y, queries, k)

    def predict(
        self,
        X: Float[Array, "B N d"],
        y: Float[Array, "B N"],
        x_query: Float[Array, "B d"],
    ) -> Float[Array, "B"]:
        """Predicts the label of one query after all ``N`` examples."""
        count = max(X.shape[1], 1)
        prompt = jax.vmap(self._answer, (0, 0, 0, None))
        return prompt(X, y, x_query, count)

    def _answer(self, X, y, query, count):
        if X.shape[-1] != self.dim:
            raise ValueError(f"X: expected width {self.dim}, got {X.shape[-1]}")
        H = jnp.concatenate([X, y[:, None]], axis=1)
        h_query = jnp.append(query, jnp.zeros((), query.dtype))
        scale = 1.0 / (self.num_examples or count)
        slot = self.stack().apply(H, h_query, scale=scale).h_query[-1, -1]
        return -slot if self.residual else slot
