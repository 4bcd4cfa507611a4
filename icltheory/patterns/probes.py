"""What the weights of a one-layer model do to tokens, to patterns and in neurons."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_key, nonnegative
from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Float, Order, Scalar
from icltheory.patterns.model import check_width, query_weights
from icltheory.patterns.task import PatternPrompt, PatternTask
from icltheory.pruning import prune_rows

Number = float | int | Real[ArrayLike, ""]


class Projections(Record):
    """Mean norms of projected tokens, and of components along the token's pattern."""

    query: Scalar
    query_component: Scalar
    keys: Scalar
    keys_component: Scalar


@calculator
def projections(
    params: dict[str, Any], task: PatternTask, prompt: PatternPrompt
) -> Projections:
    r"""Mean norms of projections of tokens by W_Q and W_K (Proposition 1).

    .. math:: \|W p\| \quad \text{and} \quad
        \Bigl| \Bigl\langle \frac{\mu_j}{\|\mu_j\|} , (W p)_{1..d_X} \Bigr\rangle
        \Bigr| ,

    where mu_j is the relevant pattern, in or out of domain, of the token, and ``task``
    the task that drew the prompts. The outputs of W are read in the coordinates of the
    inputs, in which W starts as a diagonal.

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task = PatternTask(6, 24, 2.0, noise=0.0, relevant_fraction=1)
        >>> params = PatternTransformer(64).init(task, key=jax.random.key(0))
        >>> found = projections(params, task, task.sample(jax.random.key(1), 20, 5))
        >>> round(float(found.query), 5), round(float(found.keys_component), 5)
        (0.4, 0.4)

    Source: Li et al. (2024), Proposition 1 and Figure 8.
    """
    check_width(params, task.width, "task")
    check_width(params, prompt.P.shape[-1], "prompt")
    unit = task.relevant / jnp.linalg.norm(task.relevant, axis=1, keepdims=True)

    def sizes(W, tokens, pattern):
        out = tokens @ W.T
        along = jnp.sum(out[..., : task.dim] * unit[pattern], axis=-1)
        return jnp.mean(jnp.linalg.norm(out, axis=-1)), jnp.mean(jnp.abs(along))

    query = sizes(params["W_Q"], prompt.P_query, prompt.query_pattern)
    keys = sizes(params["W_K"], prompt.P, prompt.pattern)
    return Projections(*query, *keys)


@calculator
def pattern_logits(params: dict[str, Any], task: PatternTask) -> Float[Array, "M M"]:
    r"""Attention logits between the relevant patterns, ``(M1, M1)``, keys in rows.

    .. math:: \mu_i^\top W_K^\top W_Q \mu_j .

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task = PatternTask(2, 2, 2.0)
        >>> params = PatternTransformer(64).init(task, key=jax.random.key(0))
        >>> abs(pattern_logits(params, task)).round(4).tolist()
        [[0.16, 0.0], [0.0, 0.16]]

    Source: Li et al. (2024), Theorem 1 and Proposition 1.
    """
    check_width(params, task.width, "task")
    d = task.dim
    keys = task.relevant @ params["W_K"][:, :d].T
    return keys @ (task.relevant @ params["W_Q"][:, :d].T).T


@calculator
def activation_shares(
    params: dict[str, Any], prompt: PatternPrompt
) -> Float[Array, "m"]:
    r"""Share of the prompts of its own sign on which each neuron is active, ``(m,)``.

    .. math:: \frac{\sum_n 1[z^n = \operatorname{sign} a_i]\;
        1\bigl[ (W_O)_i \sum_s (W_V p^n_s)\, \sigma^n_s \ge 0 \bigr]}
        {\sum_n 1[z^n = \operatorname{sign} a_i]} ,

    NaN where no prompt has its sign. The slides call a neuron lucky if this indicator
    is on at the start of training.

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(task, key=jax.random.key(0))
        >>> prompt = task.sample(jax.random.key(1), 20, 500)
        >>> activation_shares(params, prompt).shape
        (64,)

    Source: Li et al. (2024), slides on the proof of Theorem 1, "lucky neurons".
    """
    check_width(params, prompt.P.shape[-1], "prompt")
    weights = query_weights(params, prompt.P, prompt.P_query)
    pooled = jnp.einsum("...l,...ld->...d", weights, prompt.P)
    inputs = (pooled @ params["W_V"].T) @ params["W_O"].T
    axes = tuple(range(inputs.ndim - 1))
    own = prompt.z[..., None] == jnp.expand_dims(jnp.sign(params["a"]), axes)
    count = jnp.sum(own, axis=axes)
    active = jnp.sum(own & (inputs >= 0), axis=axes)
    return jnp.where(count > 0, active / jnp.maximum(count, 1), jnp.nan)


class NeuronParts(Record):
    r"""Feature and label parts of the rows of W_O W_V, neuron by neuron.

    Angles are in radians. The feature angle is to the mean of the relevant patterns,
    the label angle to q, whatever the sign of a_i: near 0 for a positive neuron that
    has learned, near pi for a negative one. ``size`` is the norm of the row of W_O, and
    ``large`` at least a share of the largest.

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task = PatternTask(6, 24, 2.0)
        >>> params = PatternTransformer(64).init(task, key=jax.random.key(0))
        >>> parts = neuron_parts(params, task)
        >>> parts.label_angle.shape, int(parts.positive.sum())
        ((64,), 32)

    Source: Li et al. (2024), Proposition 2, Theorem 3, Figures 10, 11 and 14.
    """

    size: Float[Array, "*S m"]
    positive: Bool[Array, "*S m"]
    large: Bool[Array, "*S m"]
    feature_norm: Float[Array, "*S m"]
    feature_angle: Float[Array, "*S m"]
    label_norm: Float[Array, "*S m"]
    label_angle: Float[Array, "*S m"]

    @property
    def num_small(self) -> Array:
        """Number of neurons with a small norm."""
        return jnp.sum(~self.large, axis=-1)

    def lucky(self, angle: float = jnp.pi / 4) -> Bool[Array, "*S m"]:
        """Neurons with parts near the mean pattern and, by the sign of a_i, q or -q."""
        off = jnp.where(self.positive, self.label_angle, jnp.pi - self.label_angle)
        return (self.feature_angle <= angle) & (off <= angle)

    def mean(self, values: Float[Array, "*S m"], which: Bool[Array, "*S m"]) -> Array:
        """Mean of one of the fields over selected neurons; NaN if there are none."""
        return jnp.mean(values, axis=-1, where=which)


@calculator(threshold=nonnegative)
def neuron_parts(
    params: dict[str, Any], task: PatternTask, *, threshold: Number = 0.5
) -> NeuronParts:
    r"""Norms and angles of the two parts of each row of W_O W_V (Proposition 2).

    .. math:: (W_O W_V)_i = (f_i ;\, b_i) , \qquad
        \angle(f_i, \bar\mu) , \quad \angle(b_i, q) , \qquad
        \bar\mu = \frac{1}{M_1} \sum_j \mu_j .

    Small neurons are those with a row of W_O below ``threshold`` times the largest;
    after training the sizes fall into two groups.

    Example:
        >>> task = PatternTask(2, 2, 2.0)
        >>> row = jnp.concatenate([task.relevant.mean(0), -task.label_embedding])
        >>> params = {"W_O": row[None], "W_V": jnp.eye(8), "a": -jnp.ones(1)}
        >>> parts = neuron_parts(params, task)
        >>> bool(parts.lucky()[0]), bool(abs(parts.label_angle[0] - jnp.pi) < 1e-3)
        (True, True)

    Source: Li et al. (2024), Proposition 2, Figures 10 and 11.
    """
    feature, label = _parts(params, task)
    size = jnp.linalg.norm(params["W_O"], axis=1)
    return NeuronParts(
        size,
        params["a"] > 0,
        size >= threshold * jnp.max(size),
        jnp.linalg.norm(feature, axis=1),
        _angle(feature, jnp.mean(task.relevant, axis=0)),
        jnp.linalg.norm(label, axis=1),
        _angle(label, task.label_embedding),
    )


class GainRatio(Record):
    """Gain g and ratio c of a trained network, which the closed-form margin needs."""

    gain: Scalar
    ratio: Scalar


@calculator
def gain_ratio(params: dict[str, Any], task: PatternTask) -> GainRatio:
    r"""Gain and ratio of a trained network, computed from its weights alone.

    .. math:: g = \frac12 \sum_i |a_i|\, s_i b_i^\top q , \qquad
        c = \frac{\sum_i |a_i| \frac{1}{M_1} \sum_j f_i^\top \mu_j}
                 {\sum_i |a_i|\, s_i b_i^\top q} , \qquad
        s_i = \operatorname{sign} a_i ,

    for the parts (f_i; b_i) of W_O W_V, over the lucky neurons; the others add little.
    Attention that is not all on the query's pattern weakens the label side only: with
    the mean agreement A of the labels attended to, the margin is ``margin(S_1, g A, c /
    A)``, within .01 of that of trained networks.

    Example:
        >>> task = PatternTask(2, 2, 2.0)
        >>> mean, q = task.relevant.sum(0) / 4, task.label_embedding
        >>> rows = [jnp.concatenate([mean, q]), jnp.concatenate([mean, -q])]
        >>> params = {"W_O": jnp.stack(rows), "W_V": jnp.eye(8)}
        >>> found = gain_ratio(params | {"a": jnp.array([0.5, -0.5])}, task)
        >>> round(float(found.gain), 5), round(float(found.ratio), 5)
        (0.5, 1.0)

    Source: Li et al. (2024), Proposition 2.
    """
    feature, label = _parts(params, task)
    a = params["a"]
    weight = jnp.where(neuron_parts(params, task).lucky(), jnp.abs(a), 0)
    labels = jnp.sum(weight * jnp.sign(a) * (label @ task.label_embedding))
    features = jnp.sum(weight * (feature @ jnp.mean(task.relevant, axis=0)))
    return GainRatio(labels / 2, features / jnp.where(labels > 0, labels, jnp.inf))


def _parts(params, task):
    """Feature and label parts of the rows of W_O W_V."""
    check_width(params, task.width, "task")
    rows = params["W_O"] @ params["W_V"]
    return rows[:, : task.dim], rows[:, task.dim :]


def _angle(rows, direction):
    norms = jnp.linalg.norm(rows, axis=1) * jnp.linalg.norm(direction)
    cosine = (rows @ direction) / jnp.where(norms > 0, norms, 1)
    return jnp.arccos(jnp.clip(cosine, -1, 1))


def prune_neurons(
    params: dict[str, Any],
    fraction: Real[ArrayLike, ""] | float | int,
    *,
    order: Order = "magnitude",
    key: Any = None,
) -> dict[str, Any]:
    r"""Removes neurons: rows of W_O become zero (Theorem 3).

    .. math:: |S| = \operatorname{round}(R m) , \qquad
        (W_O)_{i \cdot} \mapsto 0 \ \text{ for } i \in S ,

    the smallest rows first (``"magnitude"``), the largest (``"reverse"``), or
    ``"random"`` ones by a key. In a stack of layers every layer loses its own share.
    The fraction may be traced: a sweep is a ``vmap``.

    Example:
        >>> params = {"W_O": jnp.array([[2.0], [1.0], [3.0], [4.0]])}
        >>> prune_neurons(params, 0.5)["W_O"].ravel().tolist()
        [0.0, 0.0, 3.0, 4.0]
        >>> prune_neurons(params, 0.25, order="reverse")["W_O"].ravel().tolist()
        [2.0, 1.0, 3.0, 0.0]

    Source: Li et al. (2024), Theorem 3 and Figure 14.
    """
    if key is not None:
        check_key("key", key)
    W = jnp.asarray(params["W_O"])
    if W.ndim == 2:
        return params | {"W_O": prune_rows(W, fraction, order=order, key=key)}
    keys = key if key is None else jax.random.split(key, W.shape[0])

    def one(W, key):
        return prune_rows(W, fraction, order=order, key=key)

    return params | {"W_O": jax.vmap(one)(W, keys)}
