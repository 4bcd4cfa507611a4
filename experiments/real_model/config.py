"""Config, presets and prompts of the experiment."""

import dataclasses
from typing import Literal, NamedTuple

from experiments._frame.fields import check_at_least

TASKS = ("sst2", "agnews", "emoc", "mrpc", "rte", "cb", "copa")
# The optimal rates in Tables 2 to 8 of Yao et al.; the paper does not list its grid.
PAPER_RATES = (0.0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
# Training rows of the rarest class, where there are so few that demonstrations of all
# draws would leave none to validate with.
RAREST = {"cb": 16}
ARMS = (
    "algorithm1",
    "algorithm1_kv",
    "random_layer",
    "activation",
    "magnitude",
    "random_vectors",
    "scale",
    "temperature",
)
SCORINGS = {
    "classification": ("label_token", "contextual_calibration", "pmi"),
    "choice": ("average_log_likelihood", "log_likelihood", "pmi"),
}


class Prompt(NamedTuple):
    """A second way to write a task's demonstrations, and second label words."""

    demonstration: str
    query: str
    words: tuple[str, ...] = ()


# Besides those of the paper.
PROMPTS = {
    "sst2": Prompt(
        "Review: {text!t}\nSentiment: {label}\n\n",
        "Review: {text!t}\nSentiment:",
        ("negative", "positive"),
    ),
    "agnews": Prompt(
        "Article: {text!t}\nTopic: {label}\n\n",
        "Article: {text!t}\nTopic:",
        ("World", "Sports", "Business", "Technology"),
    ),
    "emoc": Prompt(
        "Message: {text!t}\nSentiment: {label}\n\n",
        "Message: {text!t}\nSentiment:",
        ("other", "happy"),
    ),
    "mrpc": Prompt(
        "Sentence 1: {sentence1!t}\nSentence 2: {sentence2!t}\n"
        "Same meaning: {label}\n\n",
        "Sentence 1: {sentence1!t}\nSentence 2: {sentence2!t}\nSame meaning:",
        ("no", "yes"),
    ),
    "rte": Prompt(
        "{premise}\nQuestion: {hypothesis} True or False?\nAnswer: {label}\n\n",
        "{premise}\nQuestion: {hypothesis} True or False?\nAnswer:",
        ("True", "False"),
    ),
    "cb": Prompt(
        "{premise}\nQuestion: {hypothesis} True, False or Neither?\n"
        "Answer: {label}\n\n",
        "{premise}\nQuestion: {hypothesis} True, False or Neither?\nAnswer:",
        ("True", "False", "Neither"),
    ),
    "copa": Prompt(
        "Premise: {premise}\nWhat is the {question}?\nAnswer: {label!e}\n\n",
        "Premise: {premise}\nWhat is the {question}?\nAnswer: ",
    ),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """The model, tasks, pruning and evaluation of one run; it decides every number.

    Attributes:
        checkpoint: Folder or file of a checkpoint, or its name on the hub; "" for
            SmolLM2-135M-Instruct.
        tasks: Names of tasks.
        shots: Demonstrations of the learning curves; -1 for as many as fit, at most
            ``most_shots``.
        most_shots: Demonstrations that are drawn.
        examples: Validation examples of the grid, for Figures 1 and 2.
        search_examples: Validation examples of the searches.
        test_examples: Test examples.
        layers: Layers of the grid; all if empty.
        grid_rates: Clipping rates of the grid, without 0.
        rates: Clipping rates of Algorithm 1, the first of which is 0.
        top_k: Layers of largest condition number, of which the deepest is pruned.
        modules: Modules that are pruned, one at a time.
        arms: Searches under the same budget: Algorithm 1; for attention the same with
            the layer chosen without W_Q and W_O, whose condition numbers in four bits
            are those of rounding; a random layer; three other ways to prune the same
            layer; and factors for its output and its attention.
        draws: Draws of the demonstrations; arms other than Algorithm 1 use the first.
        update_queries: Queries whose implicit updates are measured.
        update_shots: Demonstrations in front of them.
        dtype: Of weights and products.
        batch_size: Examples that run together.
        level: Level of all intervals, and one minus the level of all tests.
        seed: Of random layers and random vectors.
    """

    checkpoint: str = ""
    tasks: tuple[str, ...] = TASKS
    shots: tuple[int, ...] = (0, 2, 4, 10, -1)
    most_shots: int = 32
    examples: int = 96
    search_examples: int = 192
    test_examples: int = 256
    layers: tuple[int, ...] = ()
    grid_rates: tuple[float, ...] = (0.5, 0.75, 0.9, 0.95, 0.99)
    rates: tuple[float, ...] = PAPER_RATES
    top_k: int = 4
    modules: tuple[str, ...] = ("mlp", "attn")
    arms: tuple[str, ...] = ARMS
    draws: int = 3
    update_queries: int = 32
    update_shots: tuple[int, ...] = (2, 4, 10)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch_size: int = 32
    level: float = 0.95
    seed: int = 0

    def __post_init__(self):
        check_at_least(self, 1, "examples", "search_examples", "test_examples", "draws")
        check_at_least(self, 1, "top_k", "batch_size", "update_queries", "most_shots")
        for name, known in (("tasks", PROMPTS), ("arms", ARMS)):
            values = getattr(self, name)
            if not values or not set(values) <= set(known):
                raise ValueError(
                    f"{name}: expected some of {', '.join(known)}, got {values}"
                )
        if "algorithm1" not in self.arms:
            raise ValueError(f"arms: expected algorithm1 among them, got {self.arms}")
        if self.rates[:1] != (0.0,) or list(self.rates) != sorted(set(self.rates)):
            raise ValueError(
                f"rates: expected ascending rates that begin with 0, got {self.rates}"
            )
        if max(self.update_shots) > self.most_shots:
            raise ValueError(
                f"update_shots: expected at most {self.most_shots}, got "
                f"{self.update_shots}"
            )


PRESETS = {
    "quick": Config(
        tasks=("sst2", "agnews"),
        shots=(0, 4, 10),
        most_shots=10,
        examples=32,
        search_examples=64,
        test_examples=128,
        layers=(5, 15, 25, 29),
        grid_rates=(0.5, 0.9),
        rates=(0.0, 0.5, 0.9, 0.95),
        arms=("algorithm1", "random_layer", "scale"),
        draws=1,
        update_queries=8,
        update_shots=(4, 10),
    ),
    # CB has the longest prompts, a third of the operations of all seven, for 56 test
    # questions.
    "night": Config(tasks=tuple(name for name in TASKS if name != "cb")),
    "gptj": Config("EleutherAI/gpt-j-6b", dtype="float16"),
    "llama2": Config("meta-llama/Llama-2-7b-hf", dtype="float16"),
}
TIMES = {
    "quick": "6 min, 2 cores",
    "night": "4 min, H100",
}
