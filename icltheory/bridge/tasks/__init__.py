r"""Tasks: data sets split into demonstrations, validation and test, with prompts.

``load_task`` reads SST-2, AGNEWS, EmoC, MRPC, RTE, CB and COPA from the hub or from
local files, in two profiles: what the paper says, and what the authors' scripts do.
The page ``docs/reference/profiles.md`` lists where they part.

A task of one's own is a declaration of ten lines, and a folder with ``train.jsonl`` and
``test.jsonl`` (or tsv, csv):

>>> words = ("dry", "wet")
>>> weather = TaskSpec(
...     name="weather",
...     fields={"text": "{report}"},
...     labels=(("label", words),),
...     recipes=TaskRecipe(
...         PromptTemplate("{text!t} It is {label}.\n", "{text!t} It is", words),
...         Split(per_class=2, validation="rest"),
...     ),
... )
>>> task = load_task(weather, path="folder")  # doctest: +SKIP
>>> task.prefix(1) + task.query(task.test[0])  # doctest: +SKIP
'Rain from noon on. It is wet.\nNot a cloud all day. It is'

``read_task_spec`` reads the same declaration from a YAML file, whose path ``load_task``
takes where it takes a name. ``load_table`` needs no declaration: a file with a column
of texts and one of labels. ``possible_counts`` tells what a published accuracy
was divided by.
"""

from icltheory.bridge.tasks.catalogue import TASKS
from icltheory.bridge.tasks.declare import (
    PROFILES,
    File,
    Split,
    TaskRecipe,
    TaskSpec,
    is_declaration_file,
    read_task_spec,
)
from icltheory.bridge.tasks.load import load_table, load_task, task_spec
from icltheory.bridge.tasks.scorings import SCORINGS, Scoring, possible_counts
from icltheory.bridge.tasks.task import (
    Example,
    Finding,
    LanguageTask,
    PromptTemplate,
    check_overlap,
    check_prompt,
    enforce,
    label_tokens,
)

__all__ = [
    "PROFILES",
    "SCORINGS",
    "TASKS",
    "Example",
    "File",
    "Finding",
    "LanguageTask",
    "PromptTemplate",
    "Scoring",
    "Split",
    "TaskRecipe",
    "TaskSpec",
    "check_overlap",
    "check_prompt",
    "enforce",
    "is_declaration_file",
    "label_tokens",
    "load_table",
    "load_task",
    "possible_counts",
    "read_task_spec",
    "task_spec",
]
