"""The posterior mean of the weight, in its primal and its dual form (Lemma 6.1)."""

import jax
import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_choice, check_shape
from icltheory._typing import Array, Float
from icltheory.regression._linalg import einsum, is_zero, symmetric_root
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import bayes as bayes_prediction
from icltheory.regression.predictors._inputs import Inputs, Labels, one_or_batch

__all__ = ["posterior_mean"]

FORMS = ("auto", "primal", "dual")


@calculator
def posterior_mean(
    problem: LinearPopulation, X: Inputs, y: Labels, *, form: str = "auto"
) -> Float[Array, "*B d"]:
    r"""The Bayes estimate of the weight given the examples (Lemma 6.1).

    .. math:: \hat w &= \beta^* + \Psi^{1/2} (\Psi^{1/2} X^\top X \Psi^{1/2}
        + \sigma^2 I_d)^{-1} \Psi^{1/2} X^\top (y - X \beta^*) \\
        &= \beta^* + \Psi X^\top (X \Psi X^\top + \sigma^2 I_N)^{-1} (y - X \beta^*),

    whose prediction <w_hat, x> has the least risk of all. The first line is the primal
    form, O((N + d) d^2), the second the dual one, O((N + d) N^2); both by a QR
    factorisation of the stacked square root, so the error grows with the root of the
    condition number. Psi may be singular; H does not enter. For a known sigma = 0 the
    inverse is the limit, minimum-norm least squares in coordinates whitened by Psi,
    whichever form is asked for.

    Args:
        problem: The population (H, beta*, Psi, sigma^2); a traced sigma^2 must be
            positive.
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        form: ``"primal"``, ``"dual"``, or ``"auto"``: the smaller system.

    Returns:
        The posterior mean, (d,) or (B, d).

    Example:
        >>> H, Psi = jnp.eye(2), jnp.array([[1.0, 0.2], [0.2, 0.5]])
        >>> problem = LinearPopulation(H, jnp.array([1.0, -2.0]), Psi, 0.25)
        >>> X, y = jnp.array([[1.0, 0], [0, 1], [1, -1]]), jnp.array([1.0, -2, 2.5])
        >>> [round(float(w), 6) for w in posterior_mean(problem, X, y)]
        [0.842294, -1.872162]

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """
    check_choice("form", form, FORMS)
    X, y = _read(problem, X, y)
    num_examples, dim = X.shape[-2:]
    dual = num_examples < dim if form == "auto" else form == "dual"
    if not dual or is_zero(problem.noise_var) or num_examples == 0:
        return _primal(problem, X, y)
    root = symmetric_root(jnp.asarray(problem.task_cov, X.dtype))
    mean = jnp.asarray(problem.task_mean, X.dtype)
    noise_var = jnp.asarray(problem.noise_var, X.dtype)

    def core(X, y):
        rotated = einsum("nd,de->ne", X, root)
        residual = y - einsum("nd,d->n", X, mean)
        return mean + einsum("de,e->d", root, _dual(rotated, residual, noise_var))

    return one_or_batch(core, X, y)


def _primal(problem: LinearPopulation, X: Array, y: Array) -> Array:
    """Computes the weight as predictions at the unit vectors."""
    dim = X.shape[-1]

    def coordinate(e):
        return bayes_prediction(
            X,
            y,
            jnp.broadcast_to(e.reshape((1,) * (X.ndim - 2) + (dim,)), _query_shape(X)),
            task_mean=problem.task_mean,
            task_cov=problem.task_cov,
            noise_var=problem.noise_var,
        )

    return jax.vmap(coordinate, out_axes=-1)(jnp.eye(dim, dtype=X.dtype))


def _query_shape(X: Array) -> tuple[int, ...]:
    return (*X.shape[:-2], X.shape[-1])


def _dual(A: Array, residual: Array, noise_var: Array) -> Array:
    """A'(AA' + noise I)^{-1} residual, by QR of A' stacked on sqrt(noise) I.

    Q is a triangular solve, which a GPU does for a whole batch. It is orthogonal up to
    eps times the condition number; a Newton step for (Q'Q)^{-1} leaves the square.
    """
    eye = jnp.sqrt(noise_var) * jnp.eye(A.shape[0], dtype=A.dtype)
    stacked = jnp.concatenate([A.T, eye])
    R = jnp.linalg.qr(stacked, mode="r")
    Q = jax.scipy.linalg.solve_triangular(R, stacked.T, trans="T").T
    half = jax.scipy.linalg.solve_triangular(R, residual, trans="T")
    fitted = 2 * half - einsum("kn,k->n", Q, einsum("kn,n->k", Q, half))
    return einsum("dn,n->d", Q[: A.shape[1]], fitted)


def _read(problem: LinearPopulation, X: Inputs, y: Labels) -> tuple[Array, Array]:
    shape = jnp.shape(X)
    if len(shape) not in (2, 3) or shape[-1] != problem.dim:
        d = problem.dim
        raise ValueError(f"X: expected shape (N, {d}) or (B, N, {d}), got {shape}")
    check_shape("y", y, shape[:-1])
    return jnp.asarray(X, problem.dtype), jnp.asarray(y, problem.dtype)
