"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least
from experiments._trained import GPT2_CPU, GPT2_GPU, Recipe


@dataclasses.dataclass(frozen=True)
class Features:
    """Sizes for attention on orthonormal features (Huang et al.).

    Attributes:
        balanced: Numbers of features that are equally likely.
        step_size: Step size for them.
        loss_level: Loss at which they are learned.
        finite: Lengths of finite contexts for the first of these numbers.
        imbalanced: Number of features of which one is dominant.
        dominant: Its probability.
        imbalanced_step_size: Step size for them.
        imbalanced_level: Loss at which one of these counts as learned.
        imbalanced_steps: Steps of descent on them.
    """

    balanced: tuple[int, ...] = (5, 10, 20)
    step_size: float = 0.5
    loss_level: float = 1e-3
    finite: tuple[int, ...] = (5, 10)
    imbalanced: int = 8
    dominant: float = 0.5
    imbalanced_step_size: float = 1.0
    imbalanced_level: float = 1e-2
    imbalanced_steps: int = 1000

    def __post_init__(self):
        check_at_least(self, 3, "imbalanced")
        check_at_least(self, 50, "imbalanced_steps")
        if not self.balanced or min(self.balanced) < 2:
            raise ValueError(
                f"features.balanced: expected numbers >= 2, got {self.balanced}"
            )
        if not 1 / self.imbalanced < self.dominant < 1:
            raise ValueError(
                f"features.dominant: expected a number in (1/{self.imbalanced}, 1), "
                f"got {self.dominant:g}"
            )


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Sizes for gradient descent with a kernel (Cheng et al.).

    Attributes:
        num_examples: Examples N.
        dim: Dimension d of the inputs, which are standard normal.
        nugget: Variance of the noise on the labels of the Gaussian process.
        data: Kernels of the processes that make the labels.
        attention: Kernels of the attention.
        depths: Numbers of layers.
        draws: Draws of the inputs.
        layers: Layers of the stack in the comparison of the three forms.
    """

    num_examples: int = 16
    dim: int = 4
    nugget: float = 1e-6
    data: tuple[str, ...] = ("rbf", "linear")
    attention: tuple[str, ...] = ("rbf", "exp", "softmax", "linear", "relu")
    depths: tuple[int, ...] = (0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
    draws: int = 400
    layers: int = 30

    def __post_init__(self):
        check_at_least(self, 1, "num_examples", "dim", "layers")
        check_at_least(self, 2, "draws")
        depths = self.depths
        if not depths or sorted(set(depths)) != list(depths) or depths[0] < 0:
            raise ValueError(
                f"kernels.depths: expected ascending numbers >= 0, got {self.depths}"
            )


@dataclasses.dataclass(frozen=True)
class Heads:
    """Sizes for induction scores of heads (Olsson et al.).

    Attributes:
        vocab_size: Vocabulary of the circuit that is built by hand.
        block: Distinct tokens of a block.
        repeats: How often the block comes.
        sequences: Sequences for the models that were trained.
        documents: Documents of the small language model.
        demonstrations: Demonstrations of a document.
        checkpoint: Folder of a language model of this project.
    """

    vocab_size: int = 50
    block: int = 25
    repeats: int = 4
    sequences: int = 64
    documents: int = 256
    demonstrations: int = 16
    checkpoint: str = "experiments/small_lm/checkpoint"

    def __post_init__(self):
        check_at_least(self, 2, "block", "repeats", "demonstrations")
        check_at_least(self, 1, "sequences", "documents")
        check_at_least(self, self.block, "vocab_size")


@dataclasses.dataclass(frozen=True)
class Config:
    """The computations of a run.

    Attributes:
        gpt2: Recipe of the GPT-2 on regression whose heads are read.
        features: Attention on orthonormal features.
        kernels: Descent with a kernel.
        heads: Induction scores.
        seed: Seed of all draws.
    """

    gpt2: Recipe
    features: Features = dataclasses.field(default_factory=Features)
    kernels: Kernels = dataclasses.field(default_factory=Kernels)
    heads: Heads = dataclasses.field(default_factory=Heads)
    seed: int = 0

    def __post_init__(self):
        if self.gpt2.model != "gpt2" or self.gpt2.token_layout != "interleaved":
            raise ValueError(
                "gpt2: expected a gpt2 on interleaved tokens, got "
                f"{self.gpt2.model} on {self.gpt2.token_layout}"
            )
        if self.gpt2.num_points < 4:
            raise ValueError(
                f"gpt2.num_points: expected at least 4, got {self.gpt2.num_points}"
            )


PRESETS = {
    "cpu": Config(gpt2=dataclasses.replace(GPT2_CPU, steps=1500)),
    "gpu": Config(
        gpt2=GPT2_GPU,
        features=Features(balanced=(5, 10, 20, 40), finite=(5, 10, 20)),
        kernels=Kernels(draws=4000),
        heads=Heads(sequences=512, documents=2048),
    ),
    # The papers state no sizes, so these are more features, deeper stacks and more
    # draws.
    "paper": Config(
        gpt2=GPT2_GPU,
        features=Features(balanced=(5, 10, 20, 40, 80), finite=(5, 10, 20)),
        kernels=Kernels(
            num_examples=32,
            draws=20_000,
            depths=(0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 3000, 10_000),
        ),
        heads=Heads(sequences=4096, documents=8192),
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1 min, 2 cores"}
