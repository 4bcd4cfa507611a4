"""Remark 4's claim that it explains the use of normalisation: what holds of it."""

import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.trajectory import implicit_gd_norms, implicit_update
from tests.identities.test_yao_theorem2 import corrected

pytestmark = pytest.mark.statement("Yao: Remark 4 (normalisation)")

N, n = 64, 3
RNG = np.random.default_rng(0)
W_V, W_K, W_Q = 0.4 * RNG.standard_normal((3, n, n))
H = RNG.standard_normal((N, n))


def normalised(tokens):
    """RMS normalisation: every token gets the norm sqrt(n)."""
    sizes = np.linalg.norm(tokens, axis=1, keepdims=True)
    return np.sqrt(n) * tokens / sizes


def sizes_along_depth(tokens, normalise, depth=12):
    """|dW_t| and |G_t| of layers that read normalised tokens, or raw ones."""
    P, found = np.eye(n), []
    for _ in range(depth):
        read = normalised(tokens) if normalise else tokens
        delta_W = np.asarray(implicit_update(W_V / N, W_K, W_Q, read))
        found.append((np.linalg.norm(delta_W), np.linalg.norm(delta_W @ P)))
        P = P + delta_W @ P
        tokens = tokens + read @ delta_W.T
    return np.array(found).T


@pytest.mark.parametrize("size", [0.1, 1, 10])
def test_remark_4_normalised_updates_are_bounded_at_every_depth(size, measured):
    delta_W, _ = sizes_along_depth(size * H, True)
    spectral = [np.linalg.norm(W, 2) for W in (W_V, W_K, W_Q)]
    # A mean of N terms, each at most |W_V h| |W_Q^T W_K h| with |h|^2 = n.
    limit = n * np.prod(spectral)
    measured("largest |dW_t| over its limit", delta_W.max() / limit)
    assert delta_W.max() <= limit
    first, _ = sizes_along_depth(H, True, 1)
    # The first layer does not depend on the size of the inputs at all.
    np.testing.assert_allclose(delta_W[0], first[0], rtol=1e-10)


def test_remark_4_raw_updates_grow_with_the_inputs_and_the_depth(measured):
    small, large = (sizes_along_depth(s * H, False, 6)[0] for s in (1, 3))
    assert large[0] / small[0] == pytest.approx(9, rel=1e-10)
    measured("|dW_6| over |dW_1|, raw inputs of size 3", large[-1] / large[0])
    assert large[-1] / large[0] > 100


def test_remark_4_normalisation_does_not_bound_the_implicit_gradient(measured):
    # G_t = dW_t (1 + W_{t-1}): bounded updates, and products of them that grow.
    one = np.eye(n)
    P, sizes = one, []
    for _ in range(12):
        delta_W = np.asarray(implicit_update(one / N, one, one, normalised(H)))
        sizes.append(np.linalg.norm(delta_W @ P))
        P = P + delta_W @ P
    measured("|G_12| over |G_1|, all |dW_t| equal", sizes[-1] / sizes[0])
    assert sizes[-1] / sizes[0] > 1000


def test_remark_4_the_bound_of_one_layer_is_the_same_for_inputs_of_any_size(measured):
    stack = LinearAttentionStack(*(W[None] for W in (W_V, W_K, W_Q)))
    sizes = [float(implicit_gd_norms(stack, s * H).G[0]) for s in (1, 0.1)]
    assert sizes[1] / sizes[0] == pytest.approx(0.01, rel=1e-10)
    terms = [float(corrected(stack, s * H[None], 32).terms[0]) for s in (1, 0.1)]
    measured(
        "relative change of T_1 when the inputs shrink to a tenth",
        terms[1] / terms[0] - 1,
    )
    assert terms[1] == pytest.approx(terms[0], rel=1e-10)
