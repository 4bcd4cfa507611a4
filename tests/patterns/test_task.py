import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.patterns import (
    PatternTask,
    all_tasks,
    circulant_tasks,
    out_of_domain_patterns,
)
from tests.patterns.compiled import out_of_domain, pattern_task, sample
from tests.raising import raises


@functools.cache
def task():
    """With NumPy's arrays: tests index them."""
    tasks = circulant_tasks(5, [1, 2])
    made = pattern_task(5, 7, 3.0, tasks=tasks, label_dim=4, key=3)
    return jax.tree.map(np.asarray, made)


@functools.cache
def prompts(size, length, alpha):
    return sample(task(), jax.random.key(0), length, size, alpha)


def test_patterns_are_orthogonal_and_of_norm_beta():
    basis = np.concatenate([task().relevant, task().irrelevant])
    np.testing.assert_allclose(basis @ basis.T, 9 * np.eye(12), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(task().label_embedding), 1, rtol=1e-14)
    assert (task().dim, task().width, task().num_shifted) == (12, 16, 2)
    wide = jax.eval_shape(lambda: PatternTask(5, 7, 3.0, dim=20))
    assert wide.relevant.shape == (5, 20)


def test_the_noise_of_the_query_is_not_that_of_the_context():
    prompt = prompts(400, 1, 1.0)
    tokens = np.stack([prompt.P[:, 0], prompt.P_query])[..., :12]
    kinds = np.stack([prompt.pattern[:, 0], prompt.query_pattern])
    noise = (tokens - task().relevant[kinds]) @ task().irrelevant.T
    assert abs(np.corrcoef(noise.reshape(2, -1))[0, 1]) < 4.5 / noise[0].size ** 0.5


@pytest.mark.statement("Li ICL: Eq. (6), prompts")
def test_every_token_is_a_pattern_with_noise_and_its_label():
    prompt = prompts(400, 9, 0.6)
    tokens = np.concatenate([prompt.P, prompt.P_query[:, None]], 1).reshape(-1, 16)
    kinds = np.concatenate([prompt.pattern, prompt.query_pattern[:, None]], 1).ravel()
    labels = np.concatenate([prompt.y, np.zeros((400, 1))], 1).ravel()
    used = set()
    for token, kind, label in zip(tokens[:500], kinds, labels, strict=False):
        noise = token[:12] - task().relevant[kind]
        kappa = task().irrelevant @ noise / 9
        (where,) = np.nonzero(np.abs(kappa) > 1e-9)
        assert len(where) == 1
        assert abs(kappa[where[0]]) <= 0.5
        used.add(int(where[0]))
        np.testing.assert_allclose(kappa @ task().irrelevant, noise, atol=1e-12)
        np.testing.assert_array_equal(token[12:], label * task().label_embedding)
    assert used == set(range(7))
    np.testing.assert_array_equal(prompt.X, prompt.P[..., :12])
    np.testing.assert_array_equal(prompt.x_query, prompt.P_query[:, :12])
    assert prompt.num_examples == 9
    for row in range(3):
        alone = jax.tree.map(lambda leaf, row=row: leaf[row], prompt)
        kinds = np.asarray(prompt.pattern[row])
        assert bool(alone.missed) == (prompt.query_pattern[row] not in kinds)


def test_labels_are_those_of_the_task():
    prompt = prompts(400, 9, 0.6)
    pairs, patterns, y, z, queries = map(
        np.asarray,
        (prompt.pair, prompt.pattern, prompt.y, prompt.z, prompt.query_pattern),
    )
    for b in range(400):
        a, c = pairs[b].tolist()
        assert (a, c) in task().tasks
        assert queries[b] == (a if z[b] > 0 else c)
        for kind, label in zip(patterns[b].tolist(), y[b], strict=True):
            assert label == {a: 1, c: -1}.get(kind, label)
            assert label in (1, -1)
    same = patterns == queries[:, None]
    np.testing.assert_array_equal(prompt.same, same)
    np.testing.assert_array_equal(prompt.missed, ~same.any(1))
    assert prompt.feasible.all()


@pytest.mark.statement("Li ICL: Eq. (6), prompts")
@pytest.mark.parametrize("alpha", [0.0, 0.55, 1.0])
def test_frequencies(alpha):
    """Each pattern of the pair has alpha / 2, each other (1 - alpha) / (M1 - 2)."""
    prompt = prompts(3000, 10, alpha)
    place = np.asarray(prompt.pattern)[:, :, None] == np.asarray(prompt.pair)[:, None]
    counts = [place[..., 0].mean(), place[..., 1].mean()]
    for share in counts:
        assert abs(share - alpha / 2) <= 4.5 * (share * (1 - share) / 30000) ** 0.5
    other = ~place.any(-1)
    if alpha < 1:
        coins = np.asarray(prompt.y)[other]
        assert abs(coins.mean()) < 4.5 / coins.size**0.5
    for pair in task().tasks:  # the others are equally likely, task by task
        rows = (np.asarray(prompt.pair) == pair).all(1)
        assert abs(rows.mean() - 0.1) < 4.5 * (0.09 / 3000) ** 0.5
        seen = np.bincount(np.asarray(prompt.pattern)[rows].ravel(), minlength=5)
        wanted = rows.sum() * 10 * (1 - alpha) / 3
        rest = [seen[j] for j in range(5) if j not in pair]
        assert np.abs(np.array(rest) - wanted).max() <= 5 * max(wanted, 0) ** 0.5
    assert abs(np.mean(prompt.z)) < 4.5 / 3000**0.5


def test_without_others_both_patterns_of_the_pair_are_equally_likely(key):
    drawn = sample(pattern_task(2, 4, 2.0), key, 10, 300, 1.0)
    first = np.asarray(drawn.pattern) == np.asarray(drawn.pair)[:, :1]
    assert abs(first.mean() - 0.5) < 4.5 * 0.5 / 3000**0.5


@pytest.mark.slow
def test_shifted_prompts_are_of_shifted_patterns(key):
    task = pattern_task(6, 4, 2.0, num_shifted=3)
    shifted = out_of_domain(task, 1.2, key=key)
    K = np.asarray(shifted.relevant) @ np.asarray(task.relevant).T / 4
    np.testing.assert_allclose(K.sum(1), 1.2, atol=1e-12)
    nu = np.asarray(shifted.irrelevant)
    np.testing.assert_allclose(nu @ nu.T, 4 * np.eye(4), atol=1e-12)
    inside = nu @ np.asarray(task.irrelevant).T @ np.asarray(task.irrelevant) / 4
    np.testing.assert_allclose(inside, nu, atol=1e-12)
    assert shifted.tasks == all_tasks(3)
    ring = jax.eval_shape(lambda: task.out_of_domain(1.2, key=key, tasks=[(0, 1)]))
    assert ring.tasks == ((0, 1),)


@pytest.mark.slow
def test_sweeps_are_one_program(key):
    """Over alpha, S_1 and seeds; a sum that is not feasible is said, not refused."""
    task = pattern_task(6, 4, 2.0, num_shifted=3)

    @jax.jit
    def sweep(S, alpha):
        return jax.vmap(lambda s, a: sample(task, key, 5, 6, a, s))(S, alpha)

    many = sweep(np.array([1.0, 2.0]), np.array([0.3, 0.9]))
    many = jax.tree.map(np.asarray, many)
    one = sample(task, key, 5, 6, 0.3, 1.0)
    first = jax.tree.map(lambda leaf: leaf[0], many)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), first, one)
    assert many.feasible.all(1).tolist() == [True, False]
    assert np.isfinite(many.P).all()


def test_given_patterns_and_dtype(key):
    known = task().relevant
    mu = jax.jit(lambda: out_of_domain_patterns(known, 2, 0.4, key=key))()
    given = pattern_task(2, 7, 3.0, dim=12, relevant=mu, dtype=jnp.float32)
    np.testing.assert_allclose(given.relevant, mu, rtol=1e-6)
    gram = np.asarray(given.irrelevant) @ np.asarray(given.irrelevant).T
    np.testing.assert_allclose(gram, 9 * np.eye(7), atol=1e-4)
    np.testing.assert_allclose(given.irrelevant @ mu.T, 0, atol=1e-4)
    other = pattern_task(2, 7, 3.0, dim=12, irrelevant=given.irrelevant)
    np.testing.assert_allclose(other.relevant @ other.irrelevant.T, 0, atol=1e-5)
    prompt = jax.eval_shape(lambda: given.sample(key, 4, 3))
    assert {prompt.P.dtype, prompt.y.dtype, prompt.z.dtype} == {jnp.dtype("float32")}
    assert np.all(sample(given, key, 0, 3, 1).missed)
    typed = pattern_task(5, 7, 3.0, label_dim=4, key=jax.random.key(3))
    np.testing.assert_allclose(typed.relevant, task().relevant, rtol=1e-14)


def test_bad_input(key):
    with raises("dim: expected d_X >= M1 + M2 = 12, got 11"):
        PatternTask(5, 7, 3.0, dim=11)
    with raises("num_relevant: expected an integer >= 2, got 1"):
        PatternTask(1, 7, 3.0)
    with raises("scale: expected a finite value > 0, got 0"):
        PatternTask(5, 7, 0.0)
    with raises("noise: expected a value >= 0, got -1"):
        PatternTask(5, 7, 1.0, -1.0)
    with raises("num_shifted: expected an integer >= 2, got 1"):
        PatternTask(5, 7, 1.0, num_shifted=1)
    with raises("relevant: expected shape (5, 12), got (5, 11)"):
        PatternTask(5, 7, 1.0, relevant=np.ones((5, 11)))
    with raises("irrelevant: expected finite entries"):
        PatternTask(5, 7, 1.0, irrelevant=np.full((7, 12), np.nan))
    with raises("relevant_fraction: expected a value in [0, 1], got 1.5"):
        task().with_(relevant_fraction=1.5)
    with raises("relevant_fraction: expected 1 where there are two patterns, got 0.5"):
        PatternTask(2, 2, 1.0, relevant_fraction=0.5)
    with raises("num_prompts: expected a positive integer, got 0"):
        task().sample(key, 3, 0)
    with raises("coefficient_sum: expected M1' S_1^2 <= M1 = 5, got 8.0"):
        task().out_of_domain(2.0, key=key)
    with raises("tasks: expected fewer than all 20 tasks"):
        task().with_(tasks=all_tasks(5)).held_out()


@pytest.mark.slow
def test_a_seed_may_be_an_integer_of_numpy():
    ours, theirs = (pattern_task(2, 2, 1.0, key=k).relevant for k in (3, np.int64(3)))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", [np.float32, jnp.float32, "float32"])
def test_types_of_numpy_jax_and_by_name_are_taken(dtype):
    task = PatternTask(2, 2, 1.0, dtype=dtype)
    assert task.relevant.dtype == task.dtype == np.float32


def test_a_traced_share_that_is_wrong_makes_no_prompts():
    made = pattern_task(2, 2, 1.0)

    def drawn(alpha):
        return made.with_(relevant_fraction=alpha).sample(jax.random.key(0), 3, 2).P

    prompts = jax.jit(jax.vmap(drawn))(jnp.array([1.0, 0.5]))
    assert np.isnan(prompts).any((1, 2, 3)).tolist() == [False, True]
