"""Linear attention with several heads: its exact risk, plateaus, and removed heads.

A head has a value weight v_h and a key-query matrix U_h, which is one matrix (merged)
or a product K_h'Q_h of rank R (separate). The layer is one linear step with the sum
Gamma of v_h U_h'. ``flow`` integrates its gradient flow, :mod:`.staircase` predicts it.
"""

from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import (
    check_integer,
    check_key,
    check_positive_int,
    check_shape,
    checked,
    count,
    positive,
    scalar,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float, PRNGKey, Scalar
from icltheory.regression._block_moments import Moments, check_dim, informative
from icltheory.regression._linalg import (
    Number,
    default_dtype,
    einsum,
    finite_floats,
    root_matrix,
)
from icltheory.regression.blocks import Block, EffectiveParameters
from icltheory.regression.population import (
    LinearPopulation,
    label_moment,
    step_risk,
)
from icltheory.regression.predictors.base import LinearInLabels

__all__ = ["HeadRemovals", "Heads", "head_plateaus", "head_removals"]


class Heads(LinearInLabels, Block):
    r"""One layer of linear attention with H heads.

    .. math:: \hat w = \frac{\Gamma}{N} X^\top y, \qquad
        \Gamma = \sum_h v_h U_h^\top, \qquad U_h = K_h^\top Q_h ,

    or U_h = K_h where ``Q`` is ``None``: the key-query matrix as one parameter.

    Args:
        v: Value weights, ``(H,)``.
        K: Keys, ``(H, R, d)``; merged key-query matrices, ``(H, d, d)``.
        Q: Queries, ``(H, R, d)``, or ``None``.

    Example:
        >>> K = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]]])  # two heads of rank 1
        >>> model = Heads(jnp.array([1.0, 2.0]), K, K)
        >>> model.Gamma.tolist(), model.without(0).Gamma.tolist()
        ([[1.0, 0.0], [0.0, 2.0]], [[0.0, 0.0], [0.0, 2.0]])

    Source: Zhang, Singh, Latham and Saxe (2025).
    """

    v: Any
    K: Any
    Q: Any = None

    def __post_init__(self):
        names = ("v", "K") if self.Q is None else ("v", "K", "Q")
        arrays = finite_floats(**{name: getattr(self, name) for name in names})
        for name, array in zip(names, arrays, strict=True):
            setattr(self, name, array)
        check_shape("v", self.v, ("H",))
        check_positive_int("heads", len(self.v))
        rank = "d" if self.Q is None else "R"
        check_shape("K", self.K, (len(self.v), rank, "d"))
        check_positive_int("dim", self.K.shape[-1])
        if self.Q is not None:
            check_shape("Q", self.Q, self.K.shape)

    @classmethod
    def random(
        cls,
        dim: int,
        heads: int,
        scale: Number,
        *,
        key: PRNGKey,
        rank: int | None = None,
        dtype: Any = None,
    ) -> "Heads":
        """Draws all weights from N(0, scale^2); merged heads without a rank."""
        check_positive_int("dim", dim)
        check_positive_int("heads", heads)
        check_key("key", key)
        rows = dim if rank is None else rank
        check_positive_int("rank", rows)
        dtype = default_dtype(dtype)
        scale = jnp.asarray(checked("scale", scale, scalar & positive), dtype)
        first, second, third = jax.random.split(key, 3)
        shape = heads, rows, dim
        v = scale * jax.random.normal(first, (heads,), dtype)
        K = scale * jax.random.normal(second, shape, dtype)
        Q = scale * jax.random.normal(third, shape, dtype)
        return cls(v, K, None if rank is None else Q)

    def key_query(self) -> Float[Array, "H d d"]:
        """The key-query matrices U_h."""
        return self.K if self.Q is None else einsum("hri,hrj->hij", self.K, self.Q)

    @property
    def Gamma(self) -> Float[Array, "d d"]:
        """The linear step that the heads make together."""
        return einsum("h,hji->ij", self.v, self.key_query())

    def weights(self, X: Array, y: Array) -> Array:
        """The step from zero."""
        moment = einsum("nd,n->d", X, y) / max(X.shape[0], 1)
        return einsum("ij,j->i", self.Gamma, moment)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """The risk of a linear step with Gamma, without the query's noise."""
        check_dim(population, self.dim)
        return step_risk(population, self.Gamma, k)

    def effective(self) -> EffectiveParameters:
        """The same function as effective parameters: v = 1, U = Gamma', the rest 0."""
        one, zero = jnp.ones((), self.dtype), jnp.zeros_like(self.K[0, 0])
        return EffectiveParameters(zero, zero, one, self.Gamma.T, zero)

    def minus_gradient(self, at: Moments) -> "Heads":
        r"""Minus the gradient of the risk, for D = 2 (B - H Gamma S).

        .. math:: \dot v_h = \langle D, U_h^\top\rangle, \quad \dot K_h = v_h Q_h D,
            \quad \dot Q_h = v_h K_h D^\top, \qquad \text{merged} \quad
            \dot U_h = v_h D^\top .
        """
        drift = einsum("ij,j->i", at.H, at.mean)
        B = at.H_Psi_H + jnp.outer(drift, drift)
        tau = at.tau + jnp.sum(at.mean * drift)
        S = ((at.M + 1) * B + tau * at.H) / at.M
        D = 2 * (B - einsum("ij,jk,kl->il", at.H, self.Gamma, S))
        if self.Q is None:
            in_v = einsum("ij,hji->h", D, self.K)
            return Heads(in_v, self.v[:, None, None] * D.T[None])
        KD = einsum("hrj,ij->hri", self.K, D)
        QD = einsum("hri,ij->hrj", self.Q, D)
        v = self.v[:, None, None]
        return Heads(jnp.sum(self.Q * KD, axis=(1, 2)), v * QD, v * KD)

    def without(self, head: int) -> "Heads":
        """The layer with the value weight of one head set to 0."""
        _check_index("head", head, len(self.v))
        return Heads(self.v.at[head].set(0), self.K, self.Q)

    def without_direction(self, head: int, direction: int) -> "Heads":
        """The layer without one singular direction of one key-query matrix.

        Directions are in the order of decreasing singular values. For U = sum_i s_i
        a_i b_i' the keys are projected: K (I - a a'), merged (I - a a') U.
        """
        _check_index("head", head, len(self.v))
        _check_index("direction", direction, self.dim)
        a = jnp.linalg.svd(self.key_query()[head])[0][:, direction]
        kept = jnp.eye(self.dim, dtype=self.dtype) - jnp.outer(a, a)
        order = "ij,jk->ik" if self.Q is None else "jk,ij->ik"
        K = self.K.at[head].set(einsum(order, kept, self.K[head]))
        return Heads(self.v, K, self.Q)


def _check_index(name: str, value: Any, size: int) -> None:
    check_integer(name, value, 0)
    if value >= size:
        raise ValueError(f"{name}: expected less than {size}, got {value}")


def drive(population: LinearPopulation, num_examples: Any) -> tuple[Array, Array]:
    r"""B = H M H and S of the risk c - 2 <Gamma, B> + tr(Gamma' H Gamma S).

    M = E w w', and N S = (N + 1) H M H + tau H for Gaussian inputs.
    """
    H, M = population.input_cov, population.second_moment
    k = jnp.asarray(num_examples, population.dtype)
    return einsum("ij,jk,kl->il", H, M, H), label_moment(population, M, k) / k


def whitened(population: LinearPopulation) -> tuple[Array, Array, Array]:
    """H^{1/2}, and eigenvalues (descending) and vectors of H^{1/2} E[ww'] H^{1/2}."""
    root = root_matrix(population.input_root)
    Phi = einsum("ij,jk,kl->il", root, population.second_moment, root)
    phi, W = jnp.linalg.eigh((Phi + Phi.T) / 2)
    return root, jnp.maximum(phi[::-1], 0), W[:, ::-1]


@calculator(integers=("num_examples",), population=informative, num_examples=count(1))
def head_plateaus(
    population: LinearPopulation, num_examples: Any
) -> Float[Array, " m"]:
    r"""Risks ``(d + 1,)`` at which the flow of separate heads rests, query noise in.

    .. math:: R_m = \tau - \sum_{i \le m} \frac{N \phi_i^2}{(N + 1) \phi_i + \tau},
        \qquad \tau = \sum_i \phi_i + \sigma^2, \qquad m = 0, \dots, d,

    with phi_1 >= ... >= phi_d the eigenvalues of H^{1/2} E[w w'] H^{1/2}: R_m is the
    least risk of a Gamma of rank m. Every stationary value has this form, with any
    set of directions in place of the first m; H and the tasks need not commute. From
    small weights heads of rank R rest long at m = 0, R, 2R, ... and merged heads at
    m = 0 only.

    Example:
        >>> population = LinearPopulation(jnp.diag(jnp.array([3.0, 1.0])))
        >>> [round(float(risk), 2) for risk in head_plateaus(population, 8)]
        [4.0, 1.68, 1.06]

    Source: Zhang, Singh, Latham and Saxe (2025), for w ~ N(0, I) without noise.
    """
    N = jnp.asarray(num_examples, population.dtype)
    _, phi, _ = whitened(population)
    tau = jnp.sum(phi) + population.noise_var
    gains = N * phi**2 / ((N + 1) * phi + tau)
    return tau - jnp.append(0, jnp.cumsum(gains))


class HeadRemovals(Record):
    """Exact changes of the risk when parts of the heads are removed.

    Args:
        risk: Risk of the whole layer, with the query's noise.
        heads: Change when head h is removed.
        directions: Change when singular direction i of head h's key-query matrix is.
        singular_values: Of the key-query matrices, times abs(v_h).
    """

    risk: Scalar
    heads: Float[Array, "... H"]
    directions: Float[Array, "... H R"]
    singular_values: Float[Array, "... H R"]


@calculator(integers=("num_examples",), population=informative, num_examples=count(1))
def head_removals(
    model: Heads, population: LinearPopulation, num_examples: Any
) -> HeadRemovals:
    r"""How the exact risk changes when one head, or one direction of one, is removed.

    .. math:: R(\Gamma - D) - R(\Gamma) = -\langle D, \nabla R(\Gamma)\rangle
        + \mathrm{tr}(D^\top H D S), \qquad
        D = v_h U_h^\top \quad \text{or} \quad D = v_h \sigma_i\, b_i a_i^\top ,

    for U_h = sum_i sigma_i a_i b_i'. No difference of risks is taken, so that changes
    of heads that are still small are accurate. The model may have leading axes, as
    that of a trajectory. Another population or N than that of the training is pruning
    under a shift: for commuting H and E[ww'] removing direction i from an optimum then
    lowers the risk exactly if gamma_i > 2 gamma_i', gamma' the optimum there.

    Example:
        >>> population = LinearPopulation.isotropic(2)
        >>> model = Heads(jnp.ones(1), 0.5 * jnp.eye(2)[None])
        >>> found = head_removals(model, population, 2)
        >>> float(found.heads[0]), found.directions.tolist()
        (0.75, [[0.375, 0.375]])

    Source: Yao et al. (2024), for pruning by singular directions.
    """
    if jnp.ndim(model.v) > 1:
        return jax.vmap(lambda one: head_removals(one, population, num_examples))(model)
    check_dim(population, model.dim)
    B, S = drive(population, num_examples)
    H, Gamma = population.input_cov, model.Gamma
    slope = 2 * (einsum("ij,jk,kl->il", H, Gamma, S) - B)
    U = model.key_query()
    a, sizes, b = jnp.linalg.svd(U)
    rank = min(model.K.shape[1:])
    a, sizes, b = a[:, :, :rank], sizes[:, :rank], b[:, :rank]
    scaled = model.v[:, None] * sizes
    D = einsum("h,hji->hij", model.v, U)
    square = einsum("hji,jk,hkl,li->h", D, H, D, S)
    # D_hi = scaled b a', so that tr(D'HDS) = scaled^2 (b'Hb) (a'Sa).
    along = einsum("hri,ij,hjr->hr", b, slope, a)
    sides = einsum("hri,ij,hrj->hr", b, H, b) * einsum("hir,ij,hjr->hr", a, S, a)
    return HeadRemovals(
        step_risk(population, Gamma, jnp.asarray(num_examples, H.dtype))
        + population.noise_var,
        square - einsum("hij,ij->h", D, slope),
        scaled**2 * sides - scaled * along,
        jnp.abs(scaled),
    )
