"""Greedy regression trees fitted to the examples of each prompt."""

import numpy as np


def tree_prefixes(X: np.ndarray, y: np.ndarray, depth: int) -> np.ndarray:
    """Predictions of greedy regression trees after every prefix, by scikit-learn.

    Each prompt and each k has a tree of its own, grown split by split to the depth.
    Without examples the prediction is 0. Features are taken in their order where two
    splits are equally good.

    Args:
        X: Inputs, (B, P, d); row k is the query of the first k examples.
        y: Labels, (B, P).
        depth: Largest depth of the trees.

    Returns:
        The predictions, (B, P).

    References:
        Garg et al. 2022, Section 5; Breiman et al. 1984. Verified by
        ``tests/experiments/test_garg_families.py``.
    """
    from sklearn.tree import DecisionTreeRegressor

    found = np.zeros(y.shape)
    for prompt, (inputs, labels) in enumerate(zip(X, y, strict=True)):
        for k in range(1, len(labels)):
            tree = DecisionTreeRegressor(max_depth=depth, random_state=0)
            tree.fit(inputs[:k], labels[:k])
            found[prompt, k] = tree.predict(inputs[k : k + 1])[0]
    return found
