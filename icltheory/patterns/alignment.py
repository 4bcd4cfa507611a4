"""The two parts of W_O W_V for each neuron, and the margin they produce."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._noted import check_nonnegative
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.patterns.task import PatternTask

__all__ = ["GainRatio", "NeuronParts", "gain_ratio", "neuron_parts"]

Number = float | int | Real[ArrayLike, ""]


@pytree
class NeuronParts:
    r"""Feature and label parts of the rows of W_O W_V, neuron by neuron.

    Angles are in radians; multiples of pi are what the figures show. The feature angle
    is to the mean of the relevant patterns, the label angle to q, whatever the sign of
    a_i: near 0 for a positive neuron that has learned, near pi for a negative one.

    Args:
        size: Norm of the row of W_O, what pruning goes by, ``(m,)``.
        positive: Whether a_i > 0, ``(m,)``.
        large: Whether the size is at least half the largest, ``(m,)``.
        feature_norm: Norm of the feature part, ``(m,)``.
        feature_angle: Its angle to the mean pattern, ``(m,)``.
        label_norm: Norm of the label part, ``(m,)``.
        label_angle: Its angle to q, ``(m,)``.

    Returns:
        A frozen pytree.

    Example:
        >>> import jax
        >>> from icltheory.patterns import PatternTransformer
        >>> task = PatternTask(6, 24, 2.0)
        >>> params = PatternTransformer(64).init(jax.random.key(0), task)
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
        """Neurons whose two parts are aligned with the mean pattern and with +-q.

        Args:
            angle: The largest angle, in radians, that counts as along.

        Returns:
            One answer for each neuron; the sign of q is that of a_i.

        Source: Li et al. (2024), Proposition 2.
        """
        off = jnp.where(self.positive, self.label_angle, jnp.pi - self.label_angle)
        return (self.feature_angle <= angle) & (off <= angle)

    def mean(self, values: Float[Array, "*S m"], which: Bool[Array, "*S m"]) -> Array:
        """Mean over the selected neurons; NaN if there are none.

        Args:
            values: One of the fields.
            which: Which neurons count, such as ``large & positive``.

        Returns:
            The mean over the last axis.
        """
        return jnp.mean(values, axis=-1, where=which)


@calculator
def neuron_parts(
    params: dict[str, Any], task: PatternTask, *, threshold: Number = 0.5
) -> NeuronParts:
    r"""Norms and angles of the two parts of each row of W_O W_V (Proposition 2).

    .. math:: (W_O W_V)_i = (f_i ;\, b_i) , \qquad
        \angle(f_i, \bar\mu) , \quad \angle(b_i, q) , \qquad
        \bar\mu = \frac{1}{M_1} \sum_j \mu_j .

    Small neurons are those with a row of W_O below ``threshold`` times the largest;
    after training the sizes fall into two groups.

    Args:
        params: Parameters of a one-layer model.
        task: The task whose patterns and label embedding are meant.
        threshold: Where large begins.

    Returns:
        One entry for each neuron.

    Example:
        >>> import jax
        >>> task = PatternTask(2, 2, 2.0)
        >>> row = jnp.concatenate([task.relevant.mean(0), -task.label_embedding])
        >>> params = {"W_O": row[None], "W_V": jnp.eye(8), "a": -jnp.ones(1)}
        >>> parts = neuron_parts(params, task)
        >>> bool(parts.lucky()[0]), bool(abs(parts.label_angle[0] - jnp.pi) < 1e-3)
        (True, True)

    Source: Li et al. (2024), Proposition 2, Figures 10 and 11.
    """
    check_nonnegative("threshold", threshold)
    feature, label = _parts(params, task)
    size = jnp.linalg.norm(params["W_O"], axis=1)
    return NeuronParts(
        size,
        jnp.asarray(params["a"]) > 0,
        size >= threshold * jnp.max(size),
        jnp.linalg.norm(feature, axis=1),
        _angle(feature, jnp.mean(task.relevant, axis=0)),
        jnp.linalg.norm(label, axis=1),
        _angle(label, task.label_embedding),
    )


@pytree
class GainRatio:
    """Ratio of gains of a trained network, which the closed-form margin needs.

    Args:
        gain: g.
        ratio: c.

    Returns:
        A frozen pytree.

    Example:
        >>> from icltheory.patterns import margin
        >>> found = GainRatio(jnp.array(0.5), jnp.array(1.0))
        >>> float(margin(1.0, found.gain, found.ratio))
        1.0

    Source: Li et al. (2024), Proposition 2.
    """

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
    Attention that is not all on the query's pattern weakens the label side only,
    because every pattern has the same coefficient sum: with the mean agreement A of the
    labels attended to, the margin is ``margin(S_1, g A, c / A)``. No fit: it is within
    .01 of that of trained networks.

    Args:
        params: Parameters of a one-layer model.
        task: The task it was trained on.

    Returns:
        g and c of :func:`margin`.

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
    a = jnp.asarray(params["a"])
    weight = jnp.where(neuron_parts(params, task).lucky(), jnp.abs(a), 0)
    labels = jnp.sum(weight * jnp.sign(a) * (label @ task.label_embedding))
    features = jnp.sum(weight * (feature @ jnp.mean(task.relevant, axis=0)))
    return GainRatio(labels / 2, features / jnp.where(labels > 0, labels, jnp.inf))


def _parts(params, task):
    """Feature and label parts of the rows of W_O W_V."""
    width = np.shape(params["W_V"])[-1]
    if width != task.width:
        raise ValueError(
            f"params: expected width {task.width}, as of the task, got {width}"
        )
    rows = jnp.asarray(params["W_O"]) @ jnp.asarray(params["W_V"])
    return rows[:, : task.dim], rows[:, task.dim :]


def _angle(rows, direction):
    norms = jnp.linalg.norm(rows, axis=1) * jnp.linalg.norm(direction)
    cosine = (rows @ direction) / jnp.where(norms > 0, norms, 1)
    return jnp.arccos(jnp.clip(cosine, -1, 1))
