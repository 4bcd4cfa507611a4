"""The experiment on mechanisms end to end, and its pictures."""

import numpy as np
import pytest

from experiments import mechanisms

SMALL = """
    --preset cpu --gpt2.dim 2 --gpt2.num-points 7 --gpt2.num-layers 1 --gpt2.width 8
    --gpt2.num-heads 2 --gpt2.steps 20 --gpt2.chunk-steps 20 --gpt2.batch-size 4
    --gpt2.optimizer.warmup-steps 0
    --features.balanced 5 --features.loss-level 0.02 --features.finite 3
    --features.imbalanced-steps 700
    --kernels.draws 8 --kernels.data rbf --kernels.attention rbf relu
    --kernels.depths 0 1 1000 --kernels.layers 5
    --heads.vocab-size 12 --heads.block 5 --heads.repeats 3 --heads.sequences 2
    --heads.documents 8 --heads.demonstrations 6
"""


@pytest.mark.slow
def test_a_small_run_passes_its_checks_and_draws_its_pictures(small_run):
    _, result, pictures = small_run(mechanisms, SMALL)
    assert pictures == {"features", "kernels", "heads"}
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    # Random matrices of 12 words have eigenvalues that balance less well.
    verdicts.pop("copying at random, of 20")
    for name, passed in verdicts.items():
        assert passed, name
    numbers = result["numbers"]
    assert numbers["not positive semi-definite"]["rbf"] == {"rbf": 0.0, "relu": 1.0}
    assert np.shape(numbers["language"]["prefix, colons"]) == (4, 4)
    assert np.shape(numbers["regression"]["prefix"]) == (1, 2)
    assert len(result["claims"]) == 6


def test_every_head_says_its_score():
    scores = np.array([[0.5, -1.0], [0.0, 0.123]])
    axes = mechanisms.draw_heads({"model": scores}, "title").axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["0.50", "-1.00", "0.00", "0.12"]
    np.testing.assert_allclose(axes.get_images()[0].get_array(), scores)
