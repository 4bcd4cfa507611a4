"""How flows are integrated: coordinates, and an exponential solver for diffrax.

In the coordinates the linear part of a flow is nearly diagonal, for which the solver is
exact. Imported when a flow is integrated, as diffrax takes long to import.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax
import jax.numpy as jnp

from icltheory._typing import Array
from icltheory.regression._block_moments import Moments, best_step, curvature
from icltheory.regression._linalg import seen_eigenvalues
from icltheory.regression.gradient_blocks import AttentionWeights, GDBeta, Scales
from icltheory.regression.population import LinearPopulation


class OfGDBeta(NamedTuple):
    """Bases and optimum of a population, and matrices of GD-beta's flow.

    With H = V diag(h) V', K = H^{1/2} Omega H^{1/2} = W diag(k) W' and Q(Gamma*) = V Z
    diag(q) Z' V', the state is y = (Z'V'(beta - beta*), V'(Gamma - Gamma*)W). Near the
    optimum its entries decay at the rates 2 q_i and 2 h_i k_j, elsewhere nearly at
    those of ``decay_rates``. ``K`` and ``H_right`` are in the basis W, ``T`` is W'V,
    ``G`` V'Gamma* W, and ``seen`` which columns of W are in im(H).
    """

    h: Array
    V: Array
    W: Array
    seen: Array
    K: Array
    Z: Array
    T: Array
    G: Array
    H_right: Array
    best: GDBeta
    M: Array

    @classmethod
    def of(
        cls, population: LinearPopulation, num_examples: Any, start: GDBeta
    ) -> "OfGDBeta":
        """Computes the coordinates of a population.

        Where eigenvalues coincide, as for H = Psi = I, the start's direction is made an
        axis: the flow couples with it most.
        """
        at = Moments.of(population, jnp.asarray(num_examples, start.dtype))
        Gamma, _ = best_step(at.H, at.Psi, at.noise_var, at.M)
        h, V = seen_eigenvalues(at.H)
        w = at.H @ (start.beta - at.mean)
        seen, W = basis_along(at.H_Omega_H, w)
        return cls(
            h=h,
            V=V,
            W=W,
            seen=seen,
            K=W.T @ at.H_Omega_H @ W,
            Z=basis_along(V.T @ curvature(at, Gamma) @ V, V.T @ w)[1],
            T=W.T @ V,
            G=V.T @ Gamma @ W,
            H_right=W.T @ at.H @ W,
            best=GDBeta(at.mean, Gamma),
            M=at.M,
        )

    def state(self, model: GDBeta) -> Array:
        """Converts a model to a state."""
        b = self.Z.T @ (self.V.T @ (model.beta - self.best.beta))
        D = self.V.T @ (model.Gamma - self.best.Gamma) @ self.W
        return jnp.concatenate([b, D.ravel()])

    def model(self, state: Array) -> GDBeta:
        """Converts a state to a model."""
        part, D = self._split(state)
        best = self.best
        return GDBeta(best.beta + self.V @ part, best.Gamma + self.V @ D @ self.W.T)

    def _split(self, state: Array) -> tuple[Array, Array]:
        """V'(beta - beta*) and V'(Gamma - Gamma*)W."""
        d = len(self.h)
        return self.Z @ state[:d], state[d:].reshape(d, d)

    def field(self, state: Array) -> Array:
        """Right-hand side of the flow, with one product of d x d matrices."""
        part, D = self._split(state)
        h, M, G = self.h, self.M, self.G + D
        left = h * part  # V'Hb
        right = self.T @ left  # W'Hb
        GH = G @ self.H_right
        spread = jnp.sum(part * left) / M  # |b|_H^2 / M
        size = jnp.sum(h[:, None] * G * GH) / M  # tr(Gamma'H Gamma H) / M
        moved = h * (G @ right)  # V'H Gamma Hb
        pull = left - (M + 1) / M * moved
        in_b = self.Z.T @ ((1 + size) * left - moved - h * ((pull @ G) @ self.T))
        in_D = jnp.outer(pull, right) - h[:, None] * (D @ self.K + spread * GH)
        in_D = jnp.where(self.seen[None], in_D, 0)  # exactly zero, despite rounding
        return 2 * jnp.concatenate([-in_b, in_D.ravel()])

    def decay_rates(self, state: Array) -> Array:
        """Diagonal of the linear part of the flow in each block, the other fixed."""
        part, D = self._split(state)
        h, M, share = self.h, self.M, (self.M + 1) / self.M
        right = self.T @ (h * part)
        K = jnp.diagonal(self.K) + share * right**2
        K = K + jnp.sum(h * part**2) / M * jnp.diagonal(self.H_right)
        G = (self.G + D) @ self.T  # V'Gamma V
        HZ = h[:, None] * self.Z
        GHZ = G @ HZ
        HGHZ = h[:, None] * GHZ
        size = jnp.sum(h[:, None] * G**2 * h[None]) / M
        Q = (1 + size) * jnp.sum(self.Z * HZ, axis=0)
        Q = Q + jnp.sum((share * GHZ - 2 * self.Z) * HGHZ, axis=0)
        pairs = jnp.outer(h, jnp.where(self.seen, K, 0))
        return 2 * jnp.concatenate([Q, pairs.ravel()])


class OfAttention(NamedTuple):
    """Coordinates of attention weights: U in the eigenbasis, u from the invariant.

    ``balance`` is u^2 - |U|_F^2 and ``sign`` that of u, both at the start.
    """

    scales: Scales
    basis: Array
    balance: Array
    sign: Array

    @classmethod
    def of(
        cls, population: LinearPopulation, num_examples: Any, start: AttentionWeights
    ) -> "OfAttention":
        """Computes the coordinates of a population and a start."""
        balance = start.u**2 - jnp.sum(start.U**2)
        return cls(*Scales.of(population, num_examples), balance, jnp.sign(start.u))

    def state(self, weights: AttentionWeights) -> Array:
        """Converts weights to a state."""
        return (self.basis.T @ weights.U @ self.basis).ravel()

    def model(self, state: Array) -> AttentionWeights:
        """Converts a state to weights."""
        U, u = self._split(state)
        return AttentionWeights(u, self.basis @ U @ self.basis.T)

    def _split(self, state: Array) -> tuple[Array, Array]:
        d = len(self.basis)
        square = jnp.sum(state**2) + self.balance
        return state.reshape(d, d), self.sign * jnp.sqrt(jnp.maximum(square, 0))

    def field(self, state: Array) -> Array:
        """Time derivative of U."""
        U, u = self._split(state)
        drive = u * jnp.diag(self.scales.values**2)
        return 2 * (drive - u**2 * self.scales.pairs * U).ravel()

    def decay_rates(self, state: Array) -> Array:
        """Decay rates of U, including the change of u near the limit."""
        U, u = self._split(state)
        return 2 * (self.scales.pairs * (u**2 + U**2)).ravel()


def basis_along(matrix: Array, direction: Array) -> tuple[Array, Array]:
    """A rank mask, and eigenvectors aligned with a direction among equal ones."""
    size = jnp.sum(direction**2)
    unit = direction / jnp.sqrt(jnp.where(size > 0, size, 1))
    small = jnp.finfo(matrix.dtype).eps ** 0.5 * jnp.max(jnp.abs(matrix))
    values, basis = seen_eigenvalues(matrix + small * jnp.outer(unit, unit))
    return values > 0, basis


def integrate(
    field: Callable[[Any, Any], Any],
    start: Any,
    args: Any,
    times: Array,
    *,
    solver: str,
    rtol: Any,
    atol: Any,
    max_steps: int,
) -> tuple[Any, Array, Array]:
    """Solves y' = field(y, args) from time 0.

    Returns the states at the times, whether all were reached, and the number of steps.
    The solver steps exactly on the times, so that no interpolation enters. Arguments of
    the exponential one have the method ``decay_rates``.
    """
    methods = {"exponential": Krogstad, "implicit": diffrax.Kvaerno5}
    controller = diffrax.ClipStepSizeController(
        diffrax.PIDController(rtol=rtol, atol=atol), step_ts=times
    )
    # Diffrax does not accept a span of length 0.
    end = jnp.maximum(times[-1], jnp.finfo(times.dtype).tiny)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: field(y, args)),
        methods.get(solver, diffrax.Tsit5)(),
        t0=jnp.zeros_like(end),
        t1=end,
        dt0=None,
        y0=start,
        args=args,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=controller,
        max_steps=max_steps,
        throw=False,
    )
    succeeded = solution.result == diffrax.RESULTS.successful
    return solution.ys, succeeded, solution.stats["num_steps"]


class Krogstad(diffrax.AbstractAdaptiveSolver):
    """Krogstad's exponential Runge-Kutta method for y' = -rates * y + N(y), order 4.

    The first and last stages are shared; their difference estimates the error to order
    3. Where N is small beside the decay, a stiff problem costs no more steps than an
    easy one. The rates >= 0 are ``args.decay_rates`` at the start of each step.
    """

    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = diffrax.LocalLinearInterpolation

    def order(self, terms):
        """Order of the method."""
        return 4

    def init(self, terms, t0, t1, y0, args):
        """Evaluates the right-hand side at the start."""
        return self.func(terms, t0, y0, args)

    def func(self, terms, t0, y0, args):
        """Evaluates the right-hand side."""
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """Takes one step and estimates its error."""
        h, rates = t1 - t0, args.decay_rates(y0)
        e, p1, p2, p3 = phi_functions(-h * rates)
        e_half, q1, q2, _ = phi_functions(-h / 2 * rates)

        def N(y):  # t0 serves for all times, as the flows are autonomous
            return terms.vf(t0, y, args) + rates * y

        N1 = solver_state + rates * y0
        N2 = N(e_half * y0 + h / 2 * q1 * N1)
        N3 = N(e_half * y0 + h * ((q1 / 2 - q2) * N1 + q2 * N2))
        N4 = N(e * y0 + h * ((p1 - 2 * p2) * N1 + 2 * p2 * N3))
        first, last = h * (p1 - 3 * p2 + 4 * p3), h * (4 * p3 - p2)
        y1 = e * y0 + first * N1 + h * (2 * p2 - 4 * p3) * (N2 + N3) + last * N4
        slope = terms.vf(t1, y1, args)
        error = last * (slope + rates * y1 - N4)
        dense = {"y0": y0, "y1": y1}
        return y1, error, dense, slope, diffrax.RESULTS.successful


TERMS = 18  # terms of the series, which suffice for float64 at |z| <= 1


def phi_functions(z: Array) -> tuple[Array, ...]:
    """exp(z) and phi_k(z) = (phi_{k-1}(z) - 1/(k-1)!) / z for k = 1, 2, 3, z <= 0."""
    near = jnp.abs(z) < 1
    small, large = jnp.where(near, z, 0), jnp.where(near, -1, z)
    series = jnp.ones_like(z)
    for k in range(TERMS, 3, -1):  # 6 phi_3 = 1 + z/4 (1 + z/5 (...))
        series = 1 + small / k * series
    third = series / 6
    second = 0.5 + small * third
    far_first = jnp.expm1(large) / large
    far_second = (far_first - 1) / large
    return (
        jnp.exp(z),
        jnp.where(near, 1 + small * second, far_first),
        jnp.where(near, second, far_second),
        jnp.where(near, third, (far_second - 0.5) / large),
    )
