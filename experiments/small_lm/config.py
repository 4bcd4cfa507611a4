"""Config of the experiment: the language, the model, its training, its questions."""

import dataclasses
from typing import Any

from experiments._frame.fields import check_at_least
from experiments.small_lm.language import Language
from experiments.small_lm.vocabulary import END, START, VOCABULARY
from icltheory.training import OptimizerConfig


@dataclasses.dataclass(frozen=True)
class SentenceCurriculum:
    """Changes of the training data, by the share of the training completed.

    Attributes:
        words_from: Until then, sentences use the first words of the lists only.
        words_to: From then on, all of them alike.
        sentences_from: Until then, sentences are of one or two words.
        sentences_to: From then on, half of the documents have sentences of the whole
            language; the others are easier by any amount.
        longer_from: From where on each length of documents after the first is used.
    """

    words_from: float = 0.12
    words_to: float = 0.3
    sentences_from: float = 0.27
    sentences_to: float = 0.6
    longer_from: tuple[float, ...] = (0.3, 0.6)

    def __post_init__(self):
        for what in ("words", "sentences"):
            first, last = (getattr(self, f"{what}_{end}") for end in ("from", "to"))
            if not 0 <= first < last <= 1:
                raise ValueError(
                    f"{what}_from: expected a share below {what}_to, got {first} "
                    f"and {last}"
                )


@dataclasses.dataclass(frozen=True)
class Config:
    """The whole recipe; it alone decides every number, for one platform.

    Attributes:
        language: What is spoken.
        width: Width of the residual stream.
        num_layers: Blocks.
        num_heads: Query heads.
        num_kv_heads: Heads of keys and values.
        mlp_width: Width inside the MLP.
        rotary_base: Base of the rotary frequencies.
        embed_std: Standard deviation of the token table at the start.
        optimizer: Update rule and its schedule.
        curriculum: What changes while it learns.
        steps: Training steps.
        lengths: Tokens of a document, one number after the other.
        batch_sizes: Documents a step at each of these lengths.
        text_weight: Weight in the loss of all tokens that are no labels.
        seed: Seed of the start and of the data.
        chunk_steps: Steps a dispatch, and a line of metrics.jsonl.
        checkpoint_every: Steps between checkpoints.
        shots: Numbers of demonstrations that are tried.
        demonstration_seeds: Draws of demonstrations and label words.
        queries: Questions asked after each draw.
        level: Confidence of the intervals.
    """

    language: Language = dataclasses.field(default_factory=Language)
    width: int = 64
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    mlp_width: int = 160
    rotary_base: float = 100.0
    embed_std: float = 0.5
    optimizer: OptimizerConfig = dataclasses.field(
        default_factory=lambda: OptimizerConfig(
            "adam",
            3e-3,
            schedule="cosine",
            warmup_steps=100,
            clip_norm=1.0,
            b2=0.98,
        )
    )
    curriculum: SentenceCurriculum = dataclasses.field(
        default_factory=SentenceCurriculum
    )
    steps: int = 4000
    lengths: tuple[int, ...] = (29, 53, 101)
    batch_sizes: tuple[int, ...] = (64, 64, 32)
    text_weight: float = 0.1
    seed: int = 0
    chunk_steps: int = 50
    checkpoint_every: int = 500
    shots: tuple[int, ...] = (0, 1, 2, 4, 8, 16)
    demonstration_seeds: int = 32
    queries: int = 32
    level: float = 0.95

    def needs_all_steps(self) -> str:
        """Returns why the run cannot be extended by more steps, or ``None``."""
        return "the stages of the curriculum are shares of all steps"

    def __post_init__(self):
        sizes = ("width", "num_layers", "num_heads", "num_kv_heads", "mlp_width")
        check_at_least(self, 1, *sizes, "steps")
        check_at_least(self, 2, "demonstration_seeds", "queries")
        least = self.language.demo_length() + 1
        if min(self.lengths, default=0) < least:
            raise ValueError(f"lengths: expected at least {least}, got {self.lengths}")
        stages = len(self.curriculum.longer_from) + 1
        if not stages == len(self.lengths) == len(self.batch_sizes):
            raise ValueError(
                f"lengths: expected {stages} and as many batch_sizes, got "
                f"{self.lengths} and {self.batch_sizes}"
            )
        if not self.shots or min(self.shots) < 0:
            raise ValueError(
                f"shots: expected at least one value, each at least 0, got {self.shots}"
            )

    def hugging_face(self) -> dict[str, Any]:
        """Returns the ``config.json`` of the model."""
        longest = 1 + (max(self.shots) + 1) * self.language.demo_length()
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(VOCABULARY),
            "hidden_size": self.width,
            "intermediate_size": self.mlp_width,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.width // self.num_heads,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": self.rotary_base,
            "max_position_embeddings": max(256, longest),
            "tie_word_embeddings": True,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": START,
            "eos_token_id": END,
            "dtype": "float32",
        }


PRESETS = {
    "cpu": Config(),
    "gpu": Config(
        width=96,
        num_layers=6,
        mlp_width=256,
        steps=20_000,
        batch_sizes=(256, 256, 256),
        demonstration_seeds=128,
        queries=64,
        checkpoint_every=2000,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "4 to 5 min, 2 cores"}
