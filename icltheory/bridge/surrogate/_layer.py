r"""A linear surrogate of a decoder's layer, and the noise of its implicit update.

The surrogate keeps the weights and the tokens that enter the layer's attention, and
puts linear attention in the place of softmax:

.. math:: \Delta W_l = \frac{1}{T \sqrt{d}} \sum_{a} \sum_{p} W_O^a W_V^a x_p \,
    (W_K^a x_p)^\top W_Q^a , \qquad x_p = \operatorname{norm}_1(h_p) ,

over the heads a (grouped keys and values are shared by their queries) of width d and
the T tokens p of the demonstrations, with the hidden states of the model as it is. It
is Lemma 1, head by head, and, but for centring, what softmax attention is to first
order in the scores. With an MLP pruned it is Appendix B.3's linear form, ``W_out W_in``
in front. Beyond one layer, :math:`G_l = \Delta W_l (1 + W_{l-1})` and
:math:`W_l = W_{l-1} + G_l` as in Theorem 1, unpruned below the layer.

A demonstration's gradient is the sum over its tokens and all heads, and linear in its
:math:`\sum_p x_p x_p^\top`. Call these functions under ``jax.enable_x64``: small
eigenvalues of the noise need the digits.
"""

import dataclasses
import math
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree

from icltheory.bounds import isotropic_term, ledoit_wolf_intensity
from icltheory.bridge.architecture import Architecture
from icltheory.linalg import thin_frobenius_norm
from icltheory.noise import without_replacement_factor

Factors = tuple[Array, Array]


def attention_factors(arch: Architecture, params: PyTree, x: np.ndarray) -> Factors:
    """Factors V and U of the update V^T U, one row for each token and head."""
    a, T, weights = arch, len(x), params["attn"]
    tokens = jnp.asarray(x, float)

    def heads(name):
        y = (tokens @ _weight(weights, name).T).reshape(T, a.num_kv_heads, a.head_dim)
        return jnp.repeat(y, a.num_heads // a.num_kv_heads, axis=1)

    W_O = _weight(weights, "W_O").reshape(a.width, a.num_heads, a.head_dim)
    W_Q = _weight(weights, "W_Q").reshape(a.num_heads, a.head_dim, a.width)
    scale = 1 / (T * a.score_divisor)
    V = scale * jnp.einsum("pad,nad->pan", heads("W_V"), W_O)
    U = jnp.einsum("pad,adn->pan", heads("W_K"), W_Q)
    return V.reshape(-1, a.width), U.reshape(-1, a.width)


def through_mlp(factors: Factors, params: PyTree) -> Factors:
    """Factors after ``W_out W_in``, the MLP without activation and gate."""
    V, U = factors
    inner, outer = (_weight(params["mlp"], name) for name in ("W_in", "W_out"))
    return V @ inner.T @ outer.T, U


def _weight(group, name):
    return jnp.asarray(group[name]["weight"], float)


def support_dim(arch: Architecture, ranks: Mapping[str, int], with_mlp: bool) -> int:
    r"""Bound on the dimension spanned by a demonstration's gradients.

    .. math:: \dim \{ \textstyle\sum_a A_a X B_a : X = X^\top \} , \qquad
        A_a = W_O^a W_V^{g(a)} , \quad B_a = (W_K^{g(a)})^\top W_Q^a .

    It is the least of four: what the heads write one by one, what the groups of keys
    and values read one by one, what the row spaces of the whole :math:`W_V` and
    :math:`W_K` let through, and what :math:`W_O` and :math:`W_Q` can write. Spaces of
    dimension p and q that meet as rarely as they can let through :math:`p q -
    c (c - 1) / 2`, :math:`c = (p + q - n)_+`. For weights in general position that is
    the dimension, but for few combinations of ranks; special weights have less.
    """
    n, d = arch.width, arch.head_dim

    def through(p, q):
        common = max(0, p + q - n)
        return p * q - common * (common - 1) // 2

    names = ("W_O", *(("W_in", "W_out") if with_mlp else ()))
    written = min(ranks[name] for name in names)
    value, key, query = (ranks[name] for name in ("W_V", "W_K", "W_Q"))
    return min(
        arch.num_heads * through(min(d, value, written), min(d, key, query)),
        arch.num_kv_heads * through(min(d, value), min(d, key)),
        through(value, key),
        written * query,
    )


@dataclasses.dataclass(frozen=True)
class Noise:
    r"""Norms of an update, and its gradient noise for b of N demonstrations.

    Attributes:
        update_norm: :math:`\|\Delta W\|_F`.
        G_norm: :math:`\|G\|_F`.
        kappa: Factor of drawing b of N without replacement.
        eigenvalues: The N largest of the covariance :math:`C`, descending.
        deviations: :math:`\|z_i - \bar z\|^2` of each demonstration.
    """

    update_norm: float
    G_norm: float
    kappa: float
    eigenvalues: np.ndarray
    deviations: np.ndarray

    @classmethod
    def of(
        cls, factors: Factors, P: Array, groups: np.ndarray, num_demos: int, shots: int
    ) -> "Noise":
        """Computes norms and noise of an update.

        Args:
            factors: V and U, rows of one token next to each other.
            P: :math:`1 + W` before the layer.
            groups: Number of the demonstration of each token.
            num_demos: Demonstrations N.
            shots: Demonstrations b of the noisy learner.
        """
        V, U = factors
        C, N = U @ P, num_demos
        owner = np.repeat(groups, len(V) // len(groups))
        member = jnp.asarray(owner[:, None] == np.arange(N)[None], V.dtype)
        K = np.asarray(member.T @ ((V @ V.T) * (C @ C.T)) @ member)
        means = K.mean(axis=0)
        K = K - means[None] - means[:, None] + means.mean()
        kappa = float(without_replacement_factor(N, shots))
        values = np.maximum(np.linalg.eigvalsh(K)[::-1], 0.0)
        sizes = (_size(V, U), _size(V, C))
        return cls(*sizes, kappa, kappa * N * values, N**2 * np.diag(K))

    @property
    def trace(self) -> float:
        """Trace of the noise covariance."""
        return float(self.kappa * self.deviations.mean())

    def rank(self, dim: int) -> int:
        """Rank of the noise covariance in a space of this dimension."""
        return int(self._kept(dim).sum())

    def term(self, dim: int) -> float:
        r"""Term T of the corrected Theorem 2; infinite if C is singular."""
        kept = self._kept(dim)
        whole = kept.sum() == dim
        log_det = np.log(self.eigenvalues[kept]).sum() if whole else -np.inf
        return float(isotropic_term(self.G_norm**2, self.trace, log_det, dim))

    def shrunk_term(self, dim: int) -> float:
        r"""Term T with the shrunken covariance :math:`(1 - \rho) C + \rho \mu 1`."""
        N = len(self.deviations)
        values = np.where(np.arange(N) < dim, self.eigenvalues, 0.0)
        total = values.sum()
        if total == 0:
            return math.inf
        sample = values / self.kappa
        rho = float(ledoit_wolf_intensity(sample, self.deviations, dim))
        added = (1 - rho) * values + rho * total / dim
        if rho == 0:
            return self.term(dim)
        log_det = np.log(added[:dim]).sum()
        log_det += max(dim - N, 0) * math.log(rho * total / dim)
        return float(isotropic_term(self.G_norm**2, total, log_det, dim))

    def _kept(self, dim: int) -> np.ndarray:
        N, values = len(self.eigenvalues), self.eigenvalues
        above = values > N * np.finfo(values.dtype).eps * values[0]
        return above & (np.arange(N) < min(N - 1, dim))


def _size(V: Array, C: Array) -> float:
    """Norm of V^T C, computed without the product if the factors are thin."""
    if len(V) <= V.shape[1]:
        return float(thin_frobenius_norm(V.T, C.T))
    return float(jnp.linalg.norm(V.T @ C))
