"""The public calculators by name, each with inputs of a realistic size."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory import attention, bounds, linalg, noise, pruning, trajectory
from icltheory import regression as reg
from icltheory.attention import LinearAttentionStack
from icltheory.layered import LayeredStack
from icltheory.regression import (
    LinearPopulation,
    gaps,
    kernels,
    optimum,
    predictors,
)

L, N, D = 4, 40, 5
n = D + 1
SHOTS = 20


class TheoryCase(NamedTuple):
    """A calculator with float64 arrays as its arguments."""

    function: Callable[..., Any]
    arrays: tuple[Any, ...]


def stack_and_tokens(layers: int, demos: int, width: int, prompts: int | None = None):
    """Draws a random stack with small updates, and tokens for one prompt or several."""
    rng = np.random.default_rng(0)
    W_V, W_K, W_Q = rng.standard_normal((3, layers, width, width)) / width**0.5
    lead = () if prompts is None else (prompts,)
    return (0.3 * W_V, W_K, W_Q), rng.standard_normal((*lead, demos, width))


def _on_stack(function, **options):
    """Wraps a calculator of a stack and demonstrations as a function of arrays."""

    def compute(weights, H):
        return function(LinearAttentionStack(*weights), H, scale=1 / N, **options)

    return compute


def _theorem2(form):
    def compute(weights, H):
        stack = LinearAttentionStack(*weights)
        bound = form(bounds.noisy_steps(stack, H, SHOTS, scale=1 / N))
        return bound.value, bound.terms

    return compute


def _theory() -> dict[str, TheoryCase]:
    """Cases of trajectories, noise and bounds."""
    small, wide = stack_and_tokens(L, N, n), stack_and_tokens(L, 8, 64)
    prompts = stack_and_tokens(L, N, 4, 30)
    one_layer = tuple(W[0] for W in small[0])
    h = np.random.default_rng(1).standard_normal(n)

    def outputs(weights, H, h):
        stack = LinearAttentionStack(*weights)
        return trajectory.implicit_gd(stack, H, scale=1 / N).outputs(h)

    def identity(weights, H, h):
        """Returns the query by the forward pass and by the trajectory of Theorem 1."""
        forward = LinearAttentionStack(*weights).apply(H, h, scale=1 / N).h_query
        return forward, outputs(weights, H, h)

    def spectral(spectrum):
        return spectrum.eigenvalues, spectrum.trace, spectrum.log_pdet, spectrum.rank

    def spectrum(method):
        run = _on_stack(noise.noise_spectrum, shots=SHOTS, method=method)
        return lambda weights, H: spectral(run(weights, H))

    rng = np.random.default_rng(2)
    covs = [A @ A.T + np.eye(6) for A in rng.standard_normal((2, 6, 6))]
    means = rng.standard_normal((2, 6))
    gaussians = (means[0], covs[0], means[1], covs[1])
    gd, norms = trajectory.implicit_gd, trajectory.implicit_gd_norms
    cases = {
        "implicit_gd, dense": TheoryCase(_on_stack(gd, method="dense"), small),
        "implicit_gd, gram": TheoryCase(_on_stack(gd, method="gram"), small),
        "Trajectory.outputs": TheoryCase(outputs, (*small, h)),
        "Theorem 1, both sides": TheoryCase(identity, (*small, h)),
        "implicit_update": TheoryCase(
            trajectory.implicit_update, (*one_layer, small[1])
        ),
        "demonstration_gradients": TheoryCase(
            _on_stack(noise.demonstration_gradients), small
        ),
        "noise_covariance": TheoryCase(
            _on_stack(noise.noise_covariance, shots=SHOTS, layer=1), small
        ),
        "noisy_trajectory": TheoryCase(
            _on_stack(
                noise.noisy_trajectory,
                shots=SHOTS,
                key=jax.random.key(0),
                noise="shots",
            ),
            small,
        ),
        "gaussian_kl": TheoryCase(bounds.gaussian_kl, gaussians),
        "held_out_term": TheoryCase(
            lambda z: bounds.held_out_term(z, 20, 15), (rng.standard_normal((N, 4)),)
        ),
        "smoothing_bound": TheoryCase(
            lambda w: bounds.smoothing_bound(w, 0.1, 0.1, 1.0, N, 1.0),
            (rng.standard_normal((30, 36)),),
        ),
    }
    for method, arrays in (("factors", wide), ("dense", small), ("gram", small)):
        cases[f"implicit_gd_norms, {method}"] = TheoryCase(
            _on_stack(norms, method=method), arrays
        )
    for method in ("rows", "symmetric", "gram"):
        cases[f"noise_spectrum, {method}"] = TheoryCase(spectrum(method), small)
    isotropic = bounds.isotropic_bound
    forms: dict[str, Callable[..., bounds.Bound]] = {
        "isotropic_bound": lambda s: isotropic(s, 1.0),
        "norm_product": lambda s: isotropic(s.norm_product("spectral"), 1.0),
        "jittered": lambda s: isotropic(s.ambient().jittered(1e-4), 1.0),
        "centred": lambda s: isotropic(s.centred("mean"), 1.0),
        "anisotropic_bound": lambda s: bounds.anisotropic_bound(s, 1.0),
        "held_out_bound": lambda s: bounds.held_out_bound(s, 1.0, 20),
    }
    return cases | {
        name: TheoryCase(_theorem2(form), prompts) for name, form in forms.items()
    }


def _pruning() -> dict[str, TheoryCase]:
    """Cases of pruning, spectra and attention layers."""
    small, h = stack_and_tokens(L, N, n), np.ones(n)
    one_layer = tuple(W[0] for W in small[0])
    rng = np.random.default_rng(3)
    W = rng.standard_normal((32, 24))

    def swept(weights, H, h):
        stack = LinearAttentionStack(*weights)
        inputs = H / N**0.5, h
        scored = pruning.Scored(LayeredStack.of(stack), stack, inputs, lambda out: out)
        return pruning.sweep(scored, 1, "attn", [0.0, 0.5])

    def applied(kind, **options):
        def compute(weights, H, h):
            return kind(*weights, **options).apply(H / N**0.5, h).h_query

        return TheoryCase(compute, (*small, h))

    def view(weights, H, h):
        W_V, W_K, W_Q = weights
        tokens = W_V, W_K, W_Q, H, h
        return attention.softmax_kernel_view(*tokens, d_scale=float(n))

    return {
        "depth_table": TheoryCase(
            _on_stack(
                lambda stack, H, **k: (
                    pruning.depth_table(stack, H, "W_K", pruning.Rank(3), **k).delta_W
                )
            ),
            small,
        ),
        "update_upper_bound": TheoryCase(
            pruning.update_upper_bound, (*one_layer, small[1] / 6)
        ),
        "update_split": TheoryCase(
            lambda *a: pruning.update_split("W_K", 3, *a), (*one_layer, small[1] / 6)
        ),
        "clip": TheoryCase(lambda W: pruning.prune(W, pruning.Rank(10)), (W,)),
        "frobenius_split": TheoryCase(lambda W: pruning.frobenius_split(W, 10), (W,)),
        "SVD.truncate": TheoryCase(lambda W: linalg.svd(W).truncate(10), (W,)),
        "condition_number": TheoryCase(linalg.condition_number, (W,)),
        "sweep": TheoryCase(swept, (*small, h)),
        "linear stack": applied(LinearAttentionStack),
        "softmax stack": applied(attention.SoftmaxAttentionStack, d_scale=6.0),
        "relu-kernel stack": applied(attention.KernelAttentionStack, kernel="relu"),
        "softmax_kernel_view": TheoryCase(view, (one_layer, small[1], h)),
    }


def _problem(H, mean, Psi):
    return LinearPopulation(H, mean, Psi, jnp.asarray(0.25, H.dtype))


def _regression() -> dict[str, TheoryCase]:
    """Cases of predictors on all prefixes and of exact risks."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((16, 21, D))
    y = np.einsum("bpd,bd->bp", X, rng.standard_normal((16, D)))
    y = y + 0.5 * rng.standard_normal(y.shape)
    pool = rng.standard_normal((64, D))
    cov = np.diag(np.linspace(0.5, 2.0, D)) + 0.1
    mean, prior = np.ones(D), np.eye(D) + 0.2
    problem, data = (cov, mean, prior), (X, y)
    query, target = X[:, -1], X[:, :-1]

    def on_problem(function, *more):
        return TheoryCase(lambda *arrays: function(_problem(*arrays), *more), problem)

    def path(rule):
        return jax.vmap(rule.predict_prefixes)

    def bayesian(X, y, mean, prior):
        rule = predictors.Bayes(_problem(jnp.eye(D, dtype=X.dtype), mean, prior))
        return path(rule)(X, y)

    def descent(X, y, x):
        system = kernels.KernelSystem.of("rbf", X, x)
        depths = jnp.array([1, 10, 100])
        found = kernels.kernel_descent(system, y, 0.05, depths)
        return found.prediction, found.limit

    def given(X, *problem):
        own = _problem(*problem)
        return jax.vmap(lambda X: predictors.Bayes(own).risk_given(own, X))(X)

    rules = {
        "LeastSquares": predictors.LeastSquares(),
        "Ridge": predictors.Ridge(1.0),
        "Steps": predictors.Steps([0.1] * 20),
        "Newton": predictors.Newton(8),
        "NearestNeighbors": predictors.NearestNeighbors(),
    }
    paths = {f"{n}, prefixes": TheoryCase(path(r), data) for n, r in rules.items()}
    return paths | {
        "Ridge": TheoryCase(
            jax.vmap(predictors.Ridge(1.0).predict), (target, y[:, :-1], query)
        ),
        "Bayes, prefixes": TheoryCase(bayesian, (X, y, mean, prior)),
        "DiscreteMMSE, prefixes": TheoryCase(
            lambda X, y, pool: path(predictors.DiscreteMMSE(pool, 0.25))(X, y),
            (X, y, pool),
        ),
        "best LTB": on_problem(lambda *given: reg.optimum(reg.LTB, *given).risk, 20),
        "gap": on_problem(reg.gap, 20),
        "best linear step": TheoryCase(
            lambda H, mean, Psi: (
                optimum(predictors.LinearStep, _problem(H, 0 * mean, Psi), 20).risk
            ),
            problem,
        ),
        "Bayes.risk_given": TheoryCase(given, (X, *problem)),
        "rates": on_problem(gaps.rates, 20),
        "kernel_descent": TheoryCase(descent, (X[0, :-1], y[0, :-1], query[0])),
        "kriging_risk": TheoryCase(kernels.kriging_risk, (X[0] @ X[0].T + np.eye(21),)),
    }


def cases() -> dict[str, TheoryCase]:
    """Returns all cases of the precision table."""
    return _theory() | _pruning() | _regression()
