"""Effect of an example's position in the prompt, which a causal mask makes."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    check_choice,
    check_positive_int,
    check_shape,
    finite,
    within,
)
from icltheory._core import calculator
from icltheory._typing import Array, Float, Mask, PRNGKey, SpecialExample
from icltheory.regression.predictors.base import predictor_of

__all__ = ["errors_by_position", "label_weights", "limit_profile"]


@calculator(static=("mask",), step_sizes=finite)
def label_weights(
    step_sizes: Float[ArrayLike, "_L"],
    X: Float[ArrayLike, "_N _d"],
    x_query: Float[ArrayLike, "_d"],
    mask: Mask = "causal",
) -> Float[Array, "N"]:
    r"""Weight of each label in the prediction of a gradient-descent stack.

    .. math::
        \hat y = \sum_i a_i y_i , \qquad
        a^\top = \sum_{t=1}^L \frac{\eta_t}{N}\, k^\top
        \prod_{s < t} \Big( I - \frac{\eta_s}{N} K \Big) ,
        \qquad k_i = \langle x_i, x \rangle ,

    with :math:`K_{ij} = \langle x_i, x_j \rangle`. With the mask ``"causal"`` a
    demonstration reads those up to itself: :math:`K_{ij} = 0` for :math:`j > i`. The
    stack is :func:`icltheory.constructions.gradient_descent` with ``scale=1 / N``.

    Example:
        >>> X, steps = jnp.ones((3, 1)), jnp.full(2, 0.3)
        >>> label_weights(steps, X, jnp.ones(1), "demos").round(3).tolist()
        [0.17, 0.17, 0.17]
        >>> label_weights(steps, X, jnp.ones(1)).round(3).tolist()
        [0.17, 0.18, 0.19]

    Source: Yao et al. (2024), Remark 1, for the layers of von Oswald et al. (2023).
    """
    step_sizes, X, x_query = map(jnp.asarray, (step_sizes, X, x_query))
    check_choice("mask", mask, ("demos", "causal"))
    check_shape("X", X, ("N", "d"))
    check_shape("x_query", x_query, (X.shape[1],))
    check_shape("step_sizes", step_sizes, ("L",))
    K = X @ X.T
    K = jnp.tril(K) if mask == "causal" else K
    steps = step_sizes / max(X.shape[0], 1)

    def back(a, step):
        return a + step * (k - a @ K), None

    # The transposed recursion of the residuals, from the last step to the first.
    k = X @ x_query
    return jax.lax.scan(back, jnp.zeros_like(k), steps[::-1])[0]


@calculator(static=("num_steps",), position=within(0, 1))
def limit_profile(
    step_size: Real[ArrayLike, ""],
    num_steps: int,
    position: Float[ArrayLike, "*_shape"],
) -> Float[Array, "*shape"]:
    r"""Relative weight of a label by its position in a long causal prompt.

    .. math::
        N a_i \to \eta\, p(s)\, \langle x_i, x \rangle , \qquad
        p(s) = \sum_{k=0}^{L-1} \binom{L}{k+1} \frac{(-\eta (1 - s))^k}{k!}
        = L^{(1)}_{L-1}\big( \eta (1 - s) \big) ,

    an associated Laguerre polynomial, for :math:`i / N \to s` (1 is next to the query),
    inputs of covariance I and L equal steps. It is L for the last example, and for many
    steps L times :math:`J_1(u) / (u / 2)` at :math:`u = 2 \sqrt{L \eta (1 - s)}`.

    Example:
        >>> limit_profile(0.5, 2, jnp.array([0.0, 0.5, 1.0])).tolist()
        [1.5, 1.75, 2.0]

    Source: The limit of :func:`label_weights`; Szego, "Orthogonal Polynomials",
    (5.1.6).
    """
    check_positive_int("num_steps", num_steps)
    x = jnp.asarray(step_size) * (1 - jnp.asarray(position))
    before, value = jnp.zeros_like(x), jnp.ones_like(x)
    for n in range(num_steps - 1):
        # (n + 1) L_{n+1} = (2 n + 2 - x) L_n - (n + 1) L_{n-1} for alpha = 1.
        before, value = value, ((2 * n + 2 - x) * value - (n + 1) * before) / (n + 1)
    return value


def errors_by_position(
    predictor: Any,
    source: Any,
    num_examples: int,
    *,
    key: PRNGKey,
    num_prompts: int = 4096,
    special: SpecialExample = "relevant",
) -> Float[Array, "S N"]:
    r"""Squared errors of a predictor by the position of one special example.

    .. math:: e_{s,p} = \big( \hat y(\text{special at } p) - y_s \big)^2 ,
        \qquad p = 1, \dots, N .

    ``"relevant"``: the special example is the query with its label, and each of the
    others comes from a task of its own. ``"wrong"``: the special example comes from
    another task, and the others are of the query's. The same prompts serve all places.

    Example:
        >>> from icltheory.regression import LeastSquares, LinearPopulation
        >>> task, key = LinearPopulation.isotropic(3), jax.random.key(0)
        >>> errors = errors_by_position(
        ...     LeastSquares(), task, 4, key=key, num_prompts=50, special="wrong")
        >>> errors.shape, bool(jnp.ptp(errors, axis=1).max() < 1e-6)  # order is nothing
        ((50, 4), True)

    Source: Yao et al. (2024), Remark 1; Liu et al. (2023), for the question.
    """
    check_positive_int("num_prompts", num_prompts)
    check_positive_int("num_examples", num_examples)
    check_choice("special", special, ("relevant", "wrong"))
    sizes = num_examples, num_prompts, special
    return _errors(predictor_of(predictor), source, key, *sizes)


@calculator(static=("num_examples", "num_prompts", "special"))
def _errors(learner, source, key, num_examples, num_prompts, special):
    own, other = jax.random.split(key)
    prompt = source.sample(own, num_examples, num_prompts)
    # Each special example is the query of a prompt without examples.
    strange = source.sample(other, 0, num_prompts * num_examples)
    x = strange.x_query.reshape(num_prompts, num_examples, -1)
    y = strange.y_query.reshape(num_prompts, num_examples)
    if special == "relevant":
        moved, others = (prompt.x_query, prompt.y_query), (x, y)
    else:
        moved, others = (x[:, 0], y[:, 0]), (prompt.X, prompt.y)

    def at(place: Array) -> Array:
        X, Y = (
            _inserted(one, rest[:, 1:], place)
            for one, rest in zip(moved, others, strict=True)
        )
        answers = jax.vmap(learner.answer)(X, Y, prompt.x_query)
        return (answers - prompt.y_query) ** 2

    return jax.lax.map(at, jnp.arange(num_examples)).T


def _inserted(one: Array, rest: Array, place: Array) -> Array:
    """Inserts one row into every prompt at the given position."""
    i, last = jnp.arange(rest.shape[1] + 1), rest.shape[1]
    order = jnp.where(i == place, last, i - (i > place))
    return jnp.concatenate([rest, one[:, None]], axis=1)[:, order]
