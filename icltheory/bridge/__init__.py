r"""Language models: checkpoints, condition numbers, tasks, evaluation, Algorithm 1.

A checkpoint in the Hugging Face layout, or a GGUF file, becomes a layered model, whose
modules can be pruned; a task becomes prompts with label words; Algorithm 1 chooses a
layer and a rate and is judged once on the test set. Who calls whom, from the files on
disk to the choice::

    families   checkpoint   tokenizer      tasks
          \       |       /                |
           decoder, model               evaluation   prompts, batches, scores
            /         \                     |
      spectra --->  pruning  --------->  evaluator   every answer once; answers
          \                                |
           `--------------------------->  search    Algorithm 1, compositions
                                            |
                                     export, harness

The layered protocol (:mod:`icltheory.layered`) and pruning (:mod:`icltheory.pruning`)
know nothing of language models and can be read without this package. Further names are
in ``bridge.tasks``, ``bridge.evaluation``, ``bridge.spectra``, ``bridge.methods``,
``bridge.inputs`` and ``bridge.cost``; comparisons of two models are in
``icltheory.statistics``.

Stability: provisional.
"""

from icltheory.bridge.answers import AnswerFile
from icltheory.bridge.architecture import Architecture, Experts, Rotary
from icltheory.bridge.checkpoint import load_checkpoint
from icltheory.bridge.cost import size_report
from icltheory.bridge.decoder import KV, Decoder, Stream, Tokens
from icltheory.bridge.evaluation import Evaluation, evaluate_naive
from icltheory.bridge.evaluator import Evaluator, evaluate
from icltheory.bridge.export import save_checkpoint
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.pruning import prune_model
from icltheory.bridge.search import (
    SearchResult,
    algorithm1,
    choose_layer,
    search_compositions,
)
from icltheory.bridge.sharding import shard_model
from icltheory.bridge.spectra import (
    ConditionNumber,
    SingularSystems,
    condition_numbers,
)
from icltheory.bridge.tasks import Example, LanguageTask, TaskSpec, load_task
from icltheory.bridge.tokenizer import Tokenizer

__all__ = [
    "KV",
    "Architecture",
    "ConditionNumber",
    "Decoder",
    "Evaluation",
    "Evaluator",
    "Example",
    "Experts",
    "LanguageModel",
    "AnswerFile",
    "Rotary",
    "SearchResult",
    "SingularSystems",
    "Stream",
    "LanguageTask",
    "TaskSpec",
    "Tokenizer",
    "Tokens",
    "algorithm1",
    "prune_model",
    "condition_numbers",
    "choose_layer",
    "evaluate",
    "evaluate_naive",
    "load_checkpoint",
    "load_task",
    "save_checkpoint",
    "search_compositions",
    "shard_model",
    "size_report",
]
