"""Trains models of several layers by Adam, one per seed, in one program."""

import dataclasses
from typing import Any

import jax
import optax

from experiments._frame.fields import check_at_least
from experiments._patterns import PatternEnsemble, TrainedEnsemble
from icltheory.patterns import DeepPatternTransformer, PatternTask, train


@dataclasses.dataclass(frozen=True)
class Layers(PatternEnsemble):
    """Data, initialisation and training of models of several layers.

    Attributes:
        num_layers: Number L of layers.
        neuron_scale: Standard deviation of neurons and read-out at the start.
        attention_noise: Standard deviation of what is added to the scaled identities.
        step_size: Step size of Adam.
        decay: Its decay of squared gradients.
    """

    num_layers: int = 3
    neuron_scale: float = 0.1
    attention_noise: float = 0.02
    steps: int = 900
    step_size: float = 1e-3
    batch_size: int = 64
    record_every: int = 25
    decay: float = 0.99

    def __post_init__(self):
        super().__post_init__()
        check_at_least(self, 0, "neuron_scale", "attention_noise")
        if not 0 < self.decay < 1:
            raise ValueError(f"decay: expected a number in (0, 1), got {self.decay}")

    def model(self) -> Any:
        """Returns the model."""
        return DeepPatternTransformer(self.num_layers, self.num_neurons)

    def start_of(self, key: Any, task: PatternTask) -> dict[str, Any]:
        """Returns the initial parameters of one seed."""
        return self.model().init(
            task,
            key=key,
            attention_scale=self.attention_scale,
            attention_noise=self.attention_noise,
            neuron_scale=self.neuron_scale,
        )


def train_layers(layers: Layers) -> TrainedEnsemble:
    """Trains the models of all seeds in one program, in full float32 precision."""
    jax.config.update("jax_default_matmul_precision", "highest")
    rule = optax.adam(layers.step_size, b2=layers.decay)

    def one(task, params, key):
        return train(
            layers.model(),
            task,
            params,
            layers.steps,
            key=key,
            rule=rule,
            batch_size=layers.batch_size,
            num_examples=layers.num_examples,
            record_every=layers.record_every,
        )

    tasks = layers.tasks()
    path = jax.vmap(one)(tasks, layers.start(tasks), layers.keys(2))
    return TrainedEnsemble(layers, tasks, jax.block_until_ready(path))
