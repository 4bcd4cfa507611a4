r"""Learners whose true error is known: weights, data and population moments.

The data are :math:`x \sim N(0, 1)`, :math:`y = \beta \cdot x + 0.5\, \epsilon` with
:math:`\|\beta\| = 1`, the loss is :math:`\min((y - w \cdot x)^2, 2)`, and the predictor
reads :math:`w` off :math:`W_L` as minus its label row. The loss lies in [0, 2], so it
is 1-sub-Gaussian.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from icltheory.attention import LinearAttentionStack
from icltheory.constructions import gradient_descent
from icltheory.trajectory import TrajectoryFactors

CLIP, NOISE_STD, STEP_SIZE = 2.0, 0.5, 0.5


def clipped_losses(w: Array, H: Array) -> Array:
    """Clipped squared error of each token [x; y]."""
    return jnp.minimum((H[:, -1] - H[:, :-1] @ w) ** 2, CLIP)


def clipped_loss(w: Array, H: Array) -> Array:
    """Mean clipped squared error over the tokens."""
    return jnp.mean(clipped_losses(w, H))


def population_loss(w: Array, task: Array) -> Array:
    r"""Expected loss: :math:`E \min(s^2 z^2, c)`, :math:`s^2 = |w - \beta|^2 + 1/4`.

    With :math:`a = \sqrt c / s` it is :math:`s^2 (2 \Phi(a) - 1 - 2 a \phi(a)) +
    2 c\, (1 - \Phi(a))`.
    """
    variance = jnp.sum((w - task) ** 2) + NOISE_STD**2
    a = jnp.sqrt(CLIP / variance)
    within = jax.scipy.special.erf(a / math.sqrt(2))
    density = jnp.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
    return variance * (within - 2 * a * density) + CLIP * (1 - within)


@dataclasses.dataclass(frozen=True)
class GradientDescent:
    """The gradient-descent stack: one step per layer; gradients are in the label row.

    Attributes:
        dim: Input dimension d_in, which is the dimension of the support.
        num_layers: Layers L.
    """

    dim: int
    num_layers: int

    @property
    def support_dim(self) -> int:
        """Dimension m_t of the support."""
        return self.dim

    @property
    def task(self) -> Array:
        """The true weight, of norm 1."""
        return jnp.full(self.dim, 1 / math.sqrt(self.dim))

    @property
    def anchor(self) -> Array:
        """Predictor after gradient descent on the population risk."""
        return self.task * (1 - (1 - STEP_SIZE) ** self.num_layers)

    def stack(self) -> LinearAttentionStack:
        """Returns the weights of the stack."""
        return gradient_descent(jnp.full(self.num_layers, STEP_SIZE), self.dim)

    def coordinates(self, gradients: TrajectoryFactors) -> Array:
        """Returns the z_i in coordinates of the support, (L, N, m)."""
        N = gradients.left.shape[1]
        return N * gradients.left[..., -1:] * gradients.right_G[..., : self.dim]

    def population(self, W: Array) -> tuple[Array, Array]:
        """Mean and covariance of z_i at W, in coordinates of the support."""
        u = self.task + W[-1, : self.dim]
        spread = (u @ u + NOISE_STD**2) * jnp.eye(self.dim) + jnp.outer(u, u)
        return -STEP_SIZE * u, STEP_SIZE**2 * spread


@dataclasses.dataclass(frozen=True)
class GenericWeights:
    """Random dense weights of width 3; gradients fill {A X B : X symmetric}.

    Attributes:
        seed: Of the weights.
        num_layers: Layers; coordinates and moments are those of the first.
        scale: Standard deviation of W_V times the root of the width.
    """

    seed: int
    num_layers: int = 1
    scale: float = 0.8
    dim: int = 2

    @property
    def support_dim(self) -> int:
        """Dimension m_t of the support."""
        n = self.dim + 1
        return n * (n + 1) // 2

    @property
    def task(self) -> Array:
        """The true weight, of norm 1."""
        return jnp.array([0.8, -0.6])

    @property
    def anchor(self) -> Array:
        """Predictor after the first layer's step on the population risk."""
        n = self.dim + 1
        mean, _ = self.population(jnp.zeros((n, n)))
        return -(self._basis() @ mean).reshape(n, n)[-1, : self.dim]

    def stack(self) -> LinearAttentionStack:
        """Returns the weights of the stack."""
        n = self.dim + 1
        draws = jax.random.normal(
            jax.random.key(self.seed), (3, self.num_layers, n, n)
        ) / math.sqrt(n)
        return LinearAttentionStack(self.scale * draws[0], draws[1], draws[2])

    def coordinates(self, gradients: TrajectoryFactors) -> Array:
        """Returns the z_i in coordinates of the support, (L, N, m)."""
        N, n = gradients.left.shape[1:]
        basis = self._basis().reshape(n, n, -1)
        return N * jnp.einsum(
            "lnp,lnq,pqm->lnm", gradients.left, gradients.right_G, basis
        )

    def population(self, W: Array) -> tuple[Array, Array]:
        """Mean and covariance of z_i at W, in coordinates of the support."""
        mean, cov = population_moments(self.stack(), 0, W, self.task)
        basis = self._basis()
        return basis.T @ mean, basis.T @ cov @ basis

    def _basis(self) -> Array:
        """Orthonormal basis of the first layer's support, (n^2, m)."""
        n = self.dim + 1
        stack = self.stack()
        image = jnp.kron(stack.W_V[0], (stack.W_K[0].T @ stack.W_Q[0]).T)
        rows, columns = np.triu_indices(n)
        symmetric = np.zeros((n, n, len(rows)))
        symmetric[rows, columns, np.arange(len(rows))] = 1
        symmetric[columns, rows, np.arange(len(rows))] = 1
        return jnp.linalg.qr(image @ symmetric.reshape(n * n, -1))[0]


Learner = GradientDescent | GenericWeights


def population_moments(
    stack: LinearAttentionStack, layer: int, W: Array, task: Array
) -> tuple[Array, Array]:
    r"""Mean and covariance of :math:`\operatorname{vec} z_i` at W, row by row.

    :math:`z = J \operatorname{vec}(h h^\top)` with :math:`J = W_V P \otimes (W_K^\top
    W_Q P)^\top P`, and for :math:`h \sim N(0, M)` the covariance of
    :math:`\operatorname{vec}(h h^\top)` is :math:`(1 + K)(M \otimes M)` with K the
    transposition.
    """
    n = W.shape[0]
    P = jnp.eye(n) + W
    right = stack.W_K[layer].T @ stack.W_Q[layer] @ P
    J = jnp.kron(stack.W_V[layer] @ P, right.T @ P)
    M = token_moment(task)
    transposed = jnp.arange(n * n).reshape(n, n).T.reshape(-1)
    both = jnp.kron(M, M)
    return J @ M.reshape(-1), J @ (both + both[transposed]) @ J.T


def token_moment(task: Array) -> Array:
    """Second moment of a token [x; y], (n, n)."""
    d = task.shape[0]
    labels = jnp.sum(task**2) + NOISE_STD**2
    top = jnp.concatenate([jnp.eye(d), task[:, None]], axis=1)
    bottom = jnp.concatenate([task, labels[None]])[None]
    return jnp.concatenate([top, bottom])


@functools.partial(jax.jit, static_argnames=("learner", "num_demos"))
def draw_tokens(key: Array, learner: Learner, num_demos: int) -> Array:
    """Draws a pool of demonstrations [x; y], (N, n)."""
    draws = jax.random.normal(key, (num_demos, learner.dim + 1))
    X = draws[:, :-1]
    y = X @ learner.task + NOISE_STD * draws[:, -1]
    return jnp.concatenate([X, y[:, None]], axis=1)
