"""Training in one call: the same as its pieces, and what is kept of it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory import training
from icltheory.models import LinearStack, transformer
from tests.raising import raises

SOURCE = reg.LinearPopulation.isotropic(2, noise_var=0.1)
MODEL = transformer(2, 4, width=8, num_layers=1)
SMALL = {"steps": 20, "batch_size": 8}
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def found():
    return training.fit(MODEL, SOURCE, key=KEY, **SMALL)


def test_it_is_the_loop_of_its_pieces(found):
    config = training.OptimizerConfig("muon", 5e-3, 3e-3, "cosine", 2, clip_norm=1.0)
    rule = training.make_optimizer(config, 20)
    plan = training.Curriculum.none(2, 5)
    step = training.make_step(MODEL, SOURCE, rule, plan, batch_size=8, num_points=5)
    state = training.init_state(MODEL, SOURCE, rule, found.config["seed"], num_points=5)
    *_, last = training.run(step, state, 20, chunk_steps=1)
    jax.tree.map(np.testing.assert_array_equal, found.model.params, last.state.params)
    assert found.losses.shape == (20,)
    assert found.losses[-1] == np.float32(last.metrics["loss"][0])
    assert found.config["num_examples"] == 4
    assert str(found).startswith("Fit(GPT2, 20 steps, loss ")


def test_it_is_a_predictor_of_one_prompt_and_of_all_prefixes(found):
    prompt = SOURCE.sample(jax.random.key(0), 4, 1)
    X, y = (leaf[0] for leaf in prompt.points())
    every = found.model.predict_prefixes(X, y)
    for k in range(5):
        one = found.predict(X[:k], y[:k], X[k])
        np.testing.assert_allclose(one, every[k], rtol=1e-5, atol=1e-6)
    both = [
        reg.estimate_risk(f, SOURCE, 4, key=KEY, num_prompts=64)
        for f in (found.model, found.predict)
    ]
    np.testing.assert_allclose(both[0].mean, both[1].mean, rtol=1e-5)


@pytest.mark.slow
def test_several_keys_are_several_models_side_by_side():
    keys = jax.random.split(KEY, 2)
    several = training.fit(MODEL, SOURCE, key=keys, **SMALL)
    alone = training.fit(MODEL, SOURCE, key=keys[1], **SMALL)
    assert len(several) == 2
    assert several[1].config == alone.config
    np.testing.assert_allclose(several[1].losses, alone.losses, rtol=1e-5)
    assert (several[0].losses != several[1].losses).any()


def test_saved_and_loaded_it_answers_alike(found, tmp_path):
    path = found.save(tmp_path / "fit")
    again = training.load_fit(path)
    assert again.model.module == MODEL
    assert again.config == found.config
    np.testing.assert_array_equal(again.losses, found.losses)
    given = jnp.ones((3, 2)), jnp.ones(3), jnp.ones(2)
    assert again.predict(*given) == found.predict(*given)
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]
    with raises("folder: expected one that does not exist, got"):
        found.save(path)
    with pytest.raises(FileNotFoundError, match=r"fit.json: expected a folder that F"):
        training.load_fit(tmp_path)


def test_training_goes_on_from_a_model_which_stays_as_it_was(found):
    before = jax.tree.map(np.array, found.model.params)
    again = training.fit(MODEL, SOURCE, key=KEY, start=found.model.params, **SMALL)
    jax.tree.map(np.testing.assert_array_equal, found.model.params, before)
    assert again.losses[:5].mean() < found.losses[:5].mean()
    with raises("start: expected parameters as the model's, with ['"):
        training.fit(MODEL, SOURCE, key=KEY, start={"w": jnp.ones(2)}, **SMALL)
    with raises("start: expected parameters, such as found.model.params, got"):
        training.fit(MODEL, SOURCE, key=KEY, start=found.model, **SMALL)


def test_a_module_without_predict_answers_by_its_last_prefix():
    class Mean(nn.Module):
        @nn.compact
        def __call__(self, X, y, X_query=None):
            scale = self.param("scale", lambda key: jnp.ones(()))
            count = jnp.maximum(jnp.arange(y.shape[1]), 1)
            return scale * (jnp.cumsum(y, axis=1) - y) / count[None]

    model = training.TrainedModel(Mean(), {"scale": jnp.float32(2.0)})
    y = jnp.array([1.0, 5.0])
    assert float(model.predict(jnp.ones((2, 2)), y, jnp.ones(2))) == 6.0


def test_progress_and_the_number_of_examples():
    calls = []
    stack = LinearStack(dim=2, num_layers=1)
    with raises("num_examples: expected a number for a LinearStack, got None"):
        training.fit(stack, SOURCE, key=KEY)
    found = training.fit(
        stack, SOURCE, key=KEY, num_examples=3, progress=lambda *c: calls.append(c),
        optimizer=training.OptimizerConfig("adam", 1e-2), **SMALL,
    )  # fmt: skip
    assert found.config["num_examples"] == 3
    assert calls[0] == (0, 20, "")
    assert calls[-1][:2] == (20, 20)
    assert calls[-1][2].startswith("training, loss ")
    with raises("source: expected one with dim and sample, got"):
        training.fit(MODEL, None, key=KEY)
    with raises("steps: expected a positive integer, got 0"):
        training.fit(MODEL, SOURCE, key=KEY, steps=0)
    with raises("key: expected"):
        training.fit(MODEL, SOURCE, key=0)
    with raises("curriculum: expected dims that end at most at 2, got 3"):
        training.fit(MODEL, SOURCE, key=KEY, curriculum=training.Curriculum.none(3, 5))
