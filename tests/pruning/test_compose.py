import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.layered import forward
from icltheory.pruning import Intervention, compose, prune_model, sweeps
from tests.pruning.models import INPUTS, MODEL, STACK, TARGETS, errors, mean_error
from tests.raising import raises

RATES = (0.1, 0.5, 0.75)
PAIRS = ((3, "W_V"), (1, "W_V"), (2, "W_K"), (3, "W_Q"))


def composed(pairs=PAIRS, rates=RATES, score=mean_error, **options):
    common = {"params": STACK, "inputs": INPUTS, "score_args": (TARGETS,)}
    return compose(MODEL, pairs, rates, score, **common, **options)


run = jax.jit(functools.partial(forward, MODEL))


def full_score(params):
    return float(np.mean(np.sum((run(params, INPUTS) - TARGETS) ** 2, axis=-1)))


@pytest.mark.slow
@pytest.mark.parametrize("maximize", [False, True])
def test_the_search_is_the_loop_with_full_evaluations(maximize):
    found = composed(maximize=maximize)
    params, best, sign = STACK, full_score(STACK), 1 if maximize else -1
    path, chosen = [best], []
    for layer, module in PAIRS:
        kept = 0.0
        before = params
        for rate in RATES:
            trial = prune_model(MODEL, before, Intervention(layer, module, rate))
            score = full_score(trial)
            if sign * score > sign * best:
                best, kept, params = score, rate, trial
        path.append(best)
        chosen.append(kept)
    assert found.rates.tolist() == chosen
    assert np.count_nonzero(chosen) > 0
    np.testing.assert_allclose(found.scores, path, rtol=1e-12)
    np.testing.assert_allclose(full_score(found.params), best, rtol=1e-12)
    assert (sign * np.diff(found.scores) >= 0).all()
    assert found.pairs == PAIRS


def test_a_rejected_module_is_rolled_back_bit_for_bit():
    found = composed(maximize=False)
    for layer, module in ((l, m) for l in range(4) for m in ("W_V", "W_K", "W_Q")):
        kept = dict(zip(found.pairs, found.rates, strict=True)).get((layer, module), 0)
        old, new = getattr(STACK, module)[layer], getattr(found.params, module)[layer]
        assert bool((old == new).all()) == (kept == 0)
    nothing = composed(maximize=False, min_gain=1e6)
    assert nothing.params is STACK
    assert nothing.rates.tolist() == [0] * 4
    assert set(np.diff(nothing.scores)) == {0.0}


def test_from_the_shallowest_to_the_deepest_the_trunk_is_run_once(monkeypatch):
    ran, block = [], sweeps._block
    monkeypatch.setattr(sweeps, "_block", lambda *a: ran.append(a[1]) or block(*a))
    composed(((1, "W_V"), (3, "W_V")))
    assert ran == [0, 1, 2]
    ran.clear()
    composed(((3, "W_V"), (1, "W_V")))
    assert ran == [0, 1, 2, 0]


def test_bad_input():
    with raises("pairs: expected at least one (layer, module), got none"):
        composed(())
    with raises("rates: expected at least one rate, got none"):
        composed(rates=())
    with raises("score: expected shape (), got (3,)"):
        composed(score=errors)
    with raises("layer: expected 0 to 3, got 9"):
        composed(((9, "attn"),))
    with raises("unpruned_score: expected a number, got nan"):
        composed(score=lambda outputs, targets: jnp.nan * mean_error(outputs, targets))
