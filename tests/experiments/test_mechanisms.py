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
    --kernels.depths 0 1 1000
    --heads.block 5 --heads.repeats 3 --heads.sequences 2
    --heads.documents 8 --heads.demonstrations 6
"""


@pytest.mark.slow
def test_a_small_run_passes_its_checks_and_draws_its_pictures(small_run):
    _, result, pictures = small_run(mechanisms, SMALL)
    assert pictures == {"features", "kernels", "heads"}
    for check in result["checks"]:
        assert check["passed"], check["name"]
    shapes = [np.shape(scores) for scores in result["numbers"]["heads"].values()]
    assert shapes == [(4, 4), (4, 4), (4, 4), (1, 2)]
    assert len(result["claims"]) == 5
    # The rbf matrix is positive definite; that of relu has negative eigenvalues.
    assert [row[-1] for row in result["tables"][1]["rows"]] == ["0%", "100%"]
