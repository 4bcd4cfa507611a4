"""Constructions, patterns and chains of thought multiply exactly on every device.

What ``test_precision.py`` asks of the theory's calculators, of the packages whose
models are built by hand or read: their weights, patterns, probes and votes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from icltheory import constructions, induction, patterns
from tests import products

KEY = jax.random.key(0)
D, M, K = 12, 4, 2  # width of tokens, states, steps


@pytest.fixture(autouse=True)
def as_a_gpu_would():
    """JAX's own default, under which a GPU shortens float32."""
    with jax.default_matmul_precision("default"):
        yield


def task(scale):
    return patterns.PatternTask(4, 8, scale, 0.1, 1.0, dtype=scale.dtype)


def on_task(function):
    """A probe of the weights of 16 neurons, as a function of arrays."""

    def compute(scale, W_Q, W_K, W_V, W_O, a):
        params = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O, "a": a}
        return jax.tree.leaves(function(params, task(scale)))

    return compute


def projected(params, task):
    return patterns.projections(params, task, task.sample(KEY, 5, 3))


def letters(training, codes):
    """Patterns in the span of others, which reach no further than their first half."""
    return cot.Alphabet(training, jnp.pad(codes, ((0, 0), (0, D))))


def on_prompt(function, num_examples=20):
    """A model by hand that reads a prompt."""

    def compute(training, codes, steps):
        alphabet = letters(training, codes)
        prompt = cot.ReasoningTask(steps, 1.0, alphabet).draw(KEY, num_examples)
        model = cot.ReasoningAttention.matching(D, 5.0)
        return function(jax.tree.map(lambda W: W.astype(codes.dtype), model), prompt)

    return compute


def answered(kind):
    return lambda model, prompt: kind(model).answers(prompt)


def task_of(steps):
    return cot.ReasoningTask(steps, 0.8)


def circuit(scale):
    made = induction.induction_circuit(4, 6, 7.3, scale.dtype)
    return made.stack.W_Q, made.logits(jnp.array([0, 1, 2, 0])) * scale


def copying(E, U):
    made = induction.induction_circuit(4, 6, dtype=E.dtype)
    return induction.head_copying(made.model, made.stack, E, U)


def cases():
    """Name -> function and float64 arrays."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    weights = (normal((16, 24)), normal((16, 24)), normal((20, 24)), normal((16, 20)))
    probe = (np.array(2.0), *weights, normal(16))
    basis = np.linalg.qr(normal((D, D)))[0]
    written = (basis[:M], basis[M : M + K])
    prompt = (*written, rng.dirichlet(np.ones(M), (K, M)))
    attention = rng.dirichlet(np.ones(6), 6)
    tokens = jnp.arange(6) % 4
    return {
        "join_tokens": (
            constructions.join_tokens,
            (normal((9, 5)), normal((9, 2)), normal(5), normal((2, 5))),
        ),
        "PatternTask": (lambda s: task(s).relevant, (np.array(2.0),)),
        "PatternTask.out_of_domain": (
            lambda s: jax.tree.leaves(task(s).out_of_domain(1.2, key=KEY)),
            (np.array(2.0),),
        ),
        "neuron_parts": (on_task(patterns.neuron_parts), probe),
        "gain_ratio": (on_task(patterns.gain_ratio), probe),
        "projections": (on_task(projected), probe),
        "pattern_logits": (on_task(patterns.pattern_logits), probe),
        "out_of_domain_patterns": (
            lambda P: patterns.out_of_domain_patterns(P, 3, 1.1, key=KEY),
            (2 * basis[:6],),
        ),
        "copying_ratio": (
            lambda A, C: induction.copying_ratio(A, C, tokens),
            (attention, normal((4, 4))),
        ),
        "induction_circuit": (circuit, (np.array(1.0),)),
        "head_copying": (copying, (normal((4, 18)), normal((4, 18)))),
        "unseen_alphabet": (
            lambda P, C: letters(P, C).unseen(KEY, 3, 0.6).patterns,
            written,
        ),
        "span_residual": (cot.span_residual, (normal((3, D)), basis[:M])),
        "nearest": (
            lambda P, C, x: letters(P, C).nearest(x),
            (*written, normal(D)),
        ),
        "ChainOfThought": (on_prompt(answered(cot.ChainOfThought)), prompt),
        "ChainOfThought, columns": (on_prompt(answered(cot.ChainOfThought), 3), prompt),
        "DirectAnswer": (on_prompt(answered(cot.DirectAnswer)), prompt),
        "attention_masses": (on_prompt(cot.attention_masses), prompt),
        "composed_transition": (lambda A: task_of(A).composed_transition, prompt[2:]),
        "cot_error_bound": (lambda A: cot.cot_error_bound(task_of(A), 50), prompt[2:]),
        "icl_error_bound": (lambda A: cot.icl_error_bound(task_of(A), 50), prompt[2:]),
    }


CASES = cases()


def arrays(name, dtype):
    return [jnp.asarray(np.asarray(a, dtype)) for a in CASES[name][1]]


@pytest.mark.parametrize("name", CASES)
def test_every_product_asks_for_the_highest_precision(name):
    found = products.products(CASES[name][0], *arrays(name, jnp.float32))
    assert found
    assert all(products.asks_for_highest(eqn) for eqn in found)


def run(change, name):
    """All numbers of a calculator in float32, from a program that is changed."""
    found = change(CASES[name][0])(*arrays(name, jnp.float32))
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(found)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["join_tokens", "pattern_logits"]
    + [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("PatternTask", "neuron_parts", "attention_masses")
    ],
)
def test_what_tf32_would_do(name):
    """As the package is, TF32 touches nothing; it would cost three digits."""
    exact = run(jax.jit, name)

    def moved(**options):
        def change(function):
            return products.rounded(function, products.TF32, **options)

        pairs = zip(run(change, name), exact, strict=True)
        return max(np.abs(a - b).max() / np.abs(b).max() for a, b in pairs)

    assert moved() < 1e-6
    assert moved(all_of_them=True) > 2e-5


@pytest.mark.slow
def test_tf32_would_bend_the_patterns():
    """Orthonormal patterns are an assumption of Theorem 1: a GPU must keep it."""

    def off(change):
        # NumPy multiplies, so that the patterns alone may be short
        made = change(lambda scale: task(scale).relevant)(jnp.float32(1.0))
        made = np.asarray(made, np.float64)
        return np.abs(made @ made.T - np.eye(len(made))).max()

    def short(function):
        return products.rounded(function, products.TF32, all_of_them=True)

    assert off(jax.jit) < 1e-6
    assert off(short) > 1e-4


def test_models_are_left_to_the_caller():
    """Training and scoring run in the precision that is set, here the device's own."""
    model = patterns.PatternTransformer(8)

    def scored(scale):
        made = task(scale)
        params, prompt = model.init(made, key=KEY), made.sample(KEY, 4, 3)
        return jax.tree.leaves(patterns.scores(model, params, prompt))

    found = products.products(scored, jnp.float32(2.0))
    assert not all(products.asks_for_highest(eqn) for eqn in found)
