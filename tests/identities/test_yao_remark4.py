"""Remark 4: what a smaller norm and what pruning do to the bound."""

import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.bounds import isotropic_bound, noisy_steps
from icltheory.trajectory import implicit_gd_norms
from tests import stacks
from tests.identities.test_yao_theorem2 import corrected, problem

pytestmark = pytest.mark.statement("Yao: Remark 4")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "spectral", "frobenius"])
def test_remark_4_every_term_is_scale_invariant(name, measured):
    stack, H = problem()
    W_V = np.asarray(stack.W_V) * np.array([1, 1, 1e-3])[:, None, None]
    smaller = LinearAttentionStack(W_V, stack.W_K, stack.W_Q)
    before, after = (
        float(implicit_gd_norms(s, H).delta_W[-1]) for s in (stack, smaller)
    )
    assert abs(after / before - 1e-3) < 1e-12

    def last_term(stack):
        steps = noisy_steps(stack, H, 32)
        steps = steps if name == "exact" else steps.norm_product(name)
        return float(isotropic_bound(steps, 1.0).terms[-1])

    a, b = last_term(stack), last_term(smaller)
    measured(
        "relative change of T_L when |dW_L| shrinks by 1000", b / a - 1, below=1e-10
    )


@pytest.mark.slow
def test_remark_4_trace_falls_when_the_gradient_rises(measured):
    stack, H = problem()
    trace = np.asarray(stacks.spectrum(stack, H, 32).trace)
    size = np.asarray(implicit_gd_norms(stack, H).G)
    kappa = 32 / (32 * 63)
    for t, g in enumerate(stacks.gradients(stack, H)):
        squares = 64 * np.sum(g**2)  # mean of |z_i|^2
        left = size[t] ** 2 + trace[t]
        right = kappa * squares + (1 - kappa) * size[t] ** 2
        measured("relative error of the identity", float(left / right - 1), below=1e-12)


def test_remark_4_pruning_acts_through_the_dimension_not_the_norm(measured):
    stack, H = problem()
    W_V = np.asarray(stack.W_V)
    U, s, Vt = np.linalg.svd(W_V[0])

    def with_tail(factor):
        scaled = U @ np.diag(s * np.array([1, 1, factor, factor])) @ Vt
        moved = np.concatenate([scaled[None], W_V[1:]])
        return LinearAttentionStack(moved, stack.W_K, stack.W_Q)

    terms = [corrected(with_tail(f), H, 32) for f in (1.0, 0.1, 0.01, 1e-4)]
    first = [float(b.terms[0]) for b in terms]
    pruned = corrected(with_tail(0.0), H, 32)
    for tail, value in zip(("1", "0.1", "0.01", "1e-4"), first, strict=True):
        measured(f"T_1, tail of W_V x {tail}", value)
    measured("T_1 pruned, on its own support", pruned.terms[0])
    assert first == sorted(first)  # a smaller norm, a larger term
    assert pruned.support_dim[0] == 7
    assert terms[0].support_dim[0] == 10
    assert pruned.terms[0] < first[0]
