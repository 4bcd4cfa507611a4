"""Trains the model on documents generated from seed and step on the device."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments._frame.run import Run
from experiments._trained import Fitted, fit
from experiments._trained.fit import mean_metrics
from experiments.small_lm.config import Config
from experiments.small_lm.language import Documents, documents
from experiments.small_lm.model import decoder_of, logits, start
from experiments.small_lm.vocabulary import FIRST_NONCE
from icltheory import training
from icltheory.training import TrainState, stream_key


def initial_state(config: Config) -> TrainState:
    """Returns the state at step 0."""

    def draw(seed):
        params = start(config, stream_key(seed, "init"))
        step = jnp.zeros((), jnp.int32)
        return TrainState(step, seed, params, _optimizer(config).init(params))

    return jax.jit(draw)(jnp.asarray(config.seed, jnp.int32))


def make_step(config: Config) -> training.Step:
    """Returns the training step: documents, gradient and update."""
    optimizer = _optimizer(config)
    loss = jax.value_and_grad(make_loss(config), has_aux=True)

    def at_length(place):
        def value(params, key, stage):
            return loss(params, _documents(config, key, stage, place))

        return value

    lengths = [at_length(place) for place in range(len(config.lengths))]

    def step(state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        key = jax.random.fold_in(stream_key(state.seed, "data"), state.step)
        stage = state.step / config.steps
        place = (stage >= jnp.asarray(config.curriculum.longer_from)).sum()
        (value, parts), grads = jax.lax.switch(place, lengths, state.params, key, stage)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        new = TrainState(state.step + 1, state.seed, params, opt_state)
        return new, {"loss": value, **parts}

    return step


def make_loss(config: Config) -> Any:
    """Returns the loss: cross-entropy of labels, and a small part of other tokens."""
    decoder = decoder_of(config)

    def loss(params: Any, drawn: Documents) -> tuple[Array, dict[str, Array]]:
        scores = logits(decoder, params, drawn.ids[:, :-1], drawn.mask[:, :-1])
        each = optax.softmax_cross_entropy_with_integer_labels(scores, drawn.ids[:, 1:])
        is_label = drawn.is_label[:, 1:]
        labels = jnp.mean(each, where=is_label)
        text = jnp.mean(each, where=drawn.mask[:, 1:] & ~is_label)
        value = labels + config.text_weight * text
        # Nonce labels in the second half, which can be inferred from demonstrations.
        late = jnp.arange(each.shape[1]) >= each.shape[1] // 2
        nonce = is_label & (drawn.ids[:, 1:] >= FIRST_NONCE) & late[None]
        told = jnp.sum(each, where=nonce) / jnp.maximum(nonce.sum(), 1)
        return value, {"label_loss": labels, "text_loss": text, "nonce_loss": told}

    return loss


def _documents(config: Config, key: Array, stage: Array, place: int) -> Documents:
    c = config.curriculum
    spread = jnp.clip((stage - c.words_from) / (c.words_to - c.words_from), 0, 1)
    whole = (stage - c.sentences_from) / (c.sentences_to - c.sentences_from)
    hardest = jnp.clip(whole, 0, 1)
    length, batch = config.lengths[place], config.batch_sizes[place]
    # This many of the shortest demonstrations fit; longer documents are truncated.
    demos = (length - 1) // 4
    return documents(key, config.language, batch, demos, length, spread, hardest)


def _optimizer(config: Config) -> optax.GradientTransformation:
    return training.make_optimizer(config.optimizer, config.steps)


def train(config: Config, run: Run) -> Fitted:
    """Trains the model, or resumes an interrupted run."""

    def record(done, chunk):
        means = mean_metrics(chunk.metrics)
        return {"step": done, **{name: value[0] for name, value in means.items()}}

    return fit(
        make_step(config),
        initial_state(config),
        run,
        record,
        folder=run.folder / "checkpoints",
        num_steps=config.steps,
        chunk_steps=config.chunk_steps,
        checkpoint_every=config.checkpoint_every,
        config=dataclasses.asdict(config),
        label="training the language model",
    )
