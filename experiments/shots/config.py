"""Config and presets of the experiment."""

import dataclasses
from typing import Annotated, Literal

import tyro

from experiments import prune_llm
from experiments._frame.fields import check_at_least

# For two draws, Student's quantile is 12.7 and the interval is useless.
LEAST_DRAWS = 3


@dataclasses.dataclass(frozen=True)
class Config:
    """The model, the tasks and the numbers of demonstrations; it decides every number.

    Attributes:
        checkpoint: Folder in the Hugging Face layout, or a name on the hub.
        tasks: Names of tasks: those of the library, or of the small language model; or
            YAML files of declarations.
        task_folder: Folder with one of the task's name for each; "" for the hub.
            Declarations in files say themselves where their data are.
        shots: Numbers of demonstrations, ascending.
        demonstration_seeds: Draws of the demonstrations, at least three; all stand
            before the same questions.
        orders: Orders of each draw: 0 as drawn, other numbers seed a random one. With
            fewer shots than the draw holds, an order also says which of them come.
        rising: Which of the tasks are checked to rise; all if empty. Where the question
            says what is asked, a good model needs no demonstrations.
        rate: Clipping rate of the pruned model beside the other; 0 for none.
        layer: Its layer, counted from the last if negative.
        module: Its module.
        split: Questions that are asked.
        profile: What the paper says, or what the authors' scripts do.
        scoring: How the options of an example are compared, such as "pmi"; "" for what
            each task declares.
        dtype: Of weights and products.
        examples: Most questions of a split, evenly spaced; all if 0.
        batch_size: Questions that run together.
        level: Level of the intervals.
    """

    checkpoint: str
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--task",))]
    task_folder: str
    shots: tuple[int, ...]
    demonstration_seeds: tuple[int, ...]
    orders: tuple[int, ...] = (0,)
    rising: tuple[str, ...] = ()
    rate: float = 0.0
    layer: int = -1
    module: str = "mlp"
    split: Literal["validation", "test"] = "validation"
    profile: Literal["paper", "authors_code"] = "paper"
    scoring: str = ""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    examples: int = 0
    batch_size: int = 32
    level: float = 0.95

    def __post_init__(self):
        check_at_least(self, 0, "examples")
        check_at_least(self, 1, "batch_size")
        if len(self.shots) < 2 or list(self.shots) != sorted(set(self.shots)):
            raise ValueError(
                f"shots: expected two numbers or more, ascending, got {self.shots}"
            )
        if self.shots[0] < 0:
            raise ValueError(f"shots: expected numbers >= 0, got {self.shots[0]}")
        seeds = self.demonstration_seeds
        if len(seeds) < LEAST_DRAWS:
            raise ValueError(
                f"demonstration_seeds: expected {LEAST_DRAWS} draws or more, of which "
                f"intervals can be made, got {seeds}"
            )
        if not 0 <= self.rate < 1:
            raise ValueError(f"rate: expected a number in [0, 1), got {self.rate:g}")
        self.subject()

    @property
    def rates(self) -> tuple[float, ...]:
        """Clipping rates to evaluate: 0, and the pruned model's if there is one."""
        return (0.0, self.rate) if self.rate else (0.0,)

    @property
    def task_names(self) -> tuple[str, ...]:
        """Task names for tables and figures; a file is named without its folder."""
        return self.subject().task_names

    def subject(self) -> prune_llm.Config:
        """Loads the model and the tasks as the pruning experiment does."""
        return prune_llm.Config(
            checkpoint=self.checkpoint,
            tasks=self.tasks,
            task_folder=self.task_folder,
            rates=self.rates,
            top_k=1,
            modules=(self.module,),
            layers=(self.layer,),
            profile=self.profile,
            scoring=self.scoring,
            shots=self.shots,
            demonstration_seeds=self.demonstration_seeds,
            orders=self.orders,
            dtype=self.dtype,
            examples=self.examples,
            batch_size=self.batch_size,
            level=self.level,
        )


_TINY = prune_llm.PRESETS["tiny"]
# Rates and layers of the published search on SST-2, whose task has ten demonstrations.
_GPTJ = Config(
    checkpoint="EleutherAI/gpt-j-6b",
    tasks=("sst2",),
    task_folder="",
    shots=(0, 1, 2, 4, 10),
    demonstration_seeds=(0, 1, 2, 3, 4),
    rate=0.95,
    layer=26,
    dtype="bfloat16",
    examples=1000,
)
PRESETS = {
    "tiny": Config(
        checkpoint=_TINY.checkpoint,
        tasks=_TINY.tasks,
        task_folder=_TINY.task_folder,
        shots=(0, 1, 2, 4, 8, 16),
        demonstration_seeds=(0, 1, 2, 3, 4),
        orders=(0, 1),
        # These label words have no meaning, so that only demonstrations can define
        # them.
        rising=("nonce", "nonce_topic"),
        rate=0.75,
    ),
    "gptj": _GPTJ,
    "llama2": dataclasses.replace(
        _GPTJ, checkpoint="meta-llama/Llama-2-7b-hf", rate=0.99, layer=30
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"tiny": "30 s, 2 cores"}
