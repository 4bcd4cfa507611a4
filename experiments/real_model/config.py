"""Config, presets and prompts of the experiment."""

import dataclasses
from typing import Any, Literal

from experiments.frame import check_at_least, expect

TASKS = ("sst2", "agnews", "emoc", "mrpc", "rte", "cb", "copa")
# The optimal rates in Tables 2 to 8 of Yao et al.; the paper does not list its grid.
PAPER_RATES = (0.0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
# Training rows of the rarest class, where there are so few that demonstrations of all
# draws would leave none to validate with.
RAREST = {"cb": 16}
# Searches under the same budget, and their names in tables: for attention also
# Algorithm 1 with the layer chosen without W_Q and W_O, whose condition numbers in four
# bits are those of rounding; a random layer; three other ways to prune the same layer;
# and factors for its output and its attention.
ARMS = {
    "algorithm1": "Algorithm 1",
    "algorithm1_kv": "layer by W_K, W_V",
    "random_layer": "random layer",
    "activation": "activation-aware",
    "magnitude": "magnitude",
    "random_vectors": "random vectors",
    "scale": "scaled output",
    "temperature": "attention temperature",
}
SCORINGS = {
    "classification": ("label_token", "contextual_calibration", "pmi"),
    "choice": ("average_log_likelihood", "log_likelihood", "pmi"),
}
# A second query and second label words, besides those of the paper.
_PAIR = "Sentence 1: {sentence1!t}\nSentence 2: {sentence2!t}\nSame meaning:"
_NLI = "{premise}\nQuestion: {hypothesis} "
PROMPTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sst2": ("Review: {text!t}\nSentiment:", ("negative", "positive")),
    "agnews": (
        "Article: {text!t}\nTopic:",
        ("World", "Sports", "Business", "Technology"),
    ),
    "emoc": ("Message: {text!t}\nSentiment:", ("other", "happy")),
    "mrpc": (_PAIR, ("no", "yes")),
    "rte": (f"{_NLI}True or False?\nAnswer:", ("True", "False")),
    "cb": (f"{_NLI}True, False or Neither?\nAnswer:", ("True", "False", "Neither")),
    "copa": ("Premise: {premise}\nWhat is the {question}?\nAnswer: ", ()),
}


def other_template(task: str) -> dict[str, Any]:
    """The second query of a task, and a demonstration that ends with its answer."""
    query, _ = PROMPTS[task]
    answer = "{label!e}" if query.endswith(" ") else " {label}"
    return {"demonstration": f"{query}{answer}\n\n", "query": query}


@dataclasses.dataclass(frozen=True)
class Config:
    """The model, tasks, pruning and evaluation of one run; it decides every number."""

    # folder or file of a checkpoint, or its name on the hub; "" for
    # SmolLM2-135M-Instruct
    checkpoint: str = ""
    tasks: tuple[str, ...] = TASKS  # names of tasks
    # demonstrations of the learning curves; -1 for as many as fit, at most most_shots
    shots: tuple[int, ...] = (0, 2, 4, 10, -1)
    most_shots: int = 32  # demonstrations that are drawn
    examples: int = 96  # validation examples of the grid, for Figures 1 and 2
    search_examples: int = 192  # validation examples of the searches
    test_examples: int = 256  # test examples
    layers: tuple[int, ...] = ()  # layers of the grid; all if empty
    # clipping rates of the grid, without 0
    grid_rates: tuple[float, ...] = (0.5, 0.75, 0.9, 0.95, 0.99)
    # clipping rates of Algorithm 1, the first of which is 0
    rates: tuple[float, ...] = PAPER_RATES
    top_k: int = 4  # layers of largest condition number; the deepest is pruned
    # modules that are pruned, one at a time
    modules: tuple[str, ...] = ("mlp", "attn")
    arms: tuple[str, ...] = tuple(ARMS)  # searches under the same budget
    # draws of the demonstrations; arms other than Algorithm 1 use the first
    draws: int = 3
    update_queries: int = 32  # queries whose implicit updates are measured
    update_shots: tuple[int, ...] = (2, 4, 10)  # demonstrations in front of them
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"  # weights, products
    batch_size: int = 32  # examples that run together
    level: float = 0.95  # level of all intervals, and one minus that of all tests
    seed: int = 0  # seed of random layers and random vectors

    def __post_init__(self):
        check_at_least(self, 1, "examples", "search_examples", "test_examples", "draws")
        check_at_least(self, 1, "top_k", "batch_size", "update_queries", "most_shots")
        for name, known in (("tasks", PROMPTS), ("arms", ARMS)):
            values = getattr(self, name)
            fits = bool(values) and set(values) <= set(known)
            expect(fits, name, f"some of {', '.join(known)}", values)
        fits = "algorithm1" in self.arms
        expect(fits, "arms", "algorithm1 among them", self.arms)
        rates, shots = self.rates, self.update_shots
        fits = rates[:1] == (0.0,) and list(rates) == sorted(set(rates))
        expect(fits, "rates", "ascending rates that begin with 0", rates)
        most = self.most_shots
        expect(max(shots) <= most, "update_shots", f"at most {most}", shots)


def arms_of(config: Config, module: str, draw: int) -> list[str]:
    """The searches of a module and draw; two of them are of attention alone."""
    return [
        arm
        for arm in (config.arms if draw == 0 else ("algorithm1",))
        if module == "attn" or arm not in ("temperature", "algorithm1_kv")
    ]


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
    "night": Config(),
    "gptj": Config("EleutherAI/gpt-j-6b", dtype="float16"),
    "llama2": Config("meta-llama/Llama-2-7b-hf", dtype="float16"),
}
TIMES = {"quick": "6 to 8 min, 2 cores", "night": "7 min, H100"}
