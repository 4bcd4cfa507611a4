"""Tasks for the bridge: files of held-out sentences, and task declarations."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.small_lm import vocabulary as v
from experiments.small_lm.curve import Question, question
from experiments.small_lm.language import Language, Sentences, sentences
from experiments.small_lm.words import GROUP, NONCE
from icltheory.bridge.tasks import PromptTemplate, Split, TaskRecipe, TaskSpec

# Each shipped task with its kind of question.
SHIPPED = {
    "sentiment": question("sentiment"),
    "topic": question("topic"),
    "nonce": question("nonce_season"),
    "nonce_topic": question("nonce_topic"),
}
ROWS = {"train": 64, "validation": 256, "test": 512}
DEMONSTRATIONS = 16
FOLDER = Path(__file__).parent / "tasks"
# This seed differs from the models' seeds, so no run shares these draws.
_SEED = 20_000


def label_words(asked: Question) -> tuple[str, ...]:
    """Returns label words by class; nonce words are a combination new to the model."""
    if asked.meant:
        return v.MEANT[v.ATTRIBUTES[asked.attribute]]
    return tuple(NONCE[:GROUP][: v.NUM_CLASSES[asked.attribute]])


def declaration(name: str) -> TaskSpec:
    """Returns the declaration of a task, which ``load_task`` reads with its folder.

    Another ``demonstration_seed`` of ``load_task`` draws other demonstrations.
    """
    words = label_words(SHIPPED[name])
    numbers = tuple(str(label) for label in range(len(words)))
    return TaskSpec(
        name=name,
        fields={"text": "{text}"},
        labels=(("label", numbers),),
        recipes=TaskRecipe(
            PromptTemplate("{text} : {label}\n", "{text} :", words),
            Split(per_class=DEMONSTRATIONS // len(words)),
        ),
    )


_sentences = jax.jit(sentences, static_argnames=("language", "held_out"))


def rows(language: Language, name: str) -> dict[str, list[dict[str, Any]]]:
    """Rows ``{"text", "label"}`` of each file; classes alternate, texts differ."""
    asked = SHIPPED[name]
    key = jax.random.fold_in(jax.random.key(_SEED), list(SHIPPED).index(name))
    subject = np.full(8 * sum(ROWS.values()), asked.attribute)
    said = _sentences(key, language, subject, held_out=True)
    classes = np.asarray(said.classes[:, asked.attribute])
    labelled = dict(zip(texts(said), classes.tolist(), strict=True))
    count = v.NUM_CLASSES[asked.attribute]
    by_class = [iter([t for t, c in labelled.items() if c == k]) for k in range(count)]
    return {
        split: [
            {"text": next(by_class[i % count]), "label": i % count} for i in range(num)
        ]
        for split, num in ROWS.items()
    }


def write(language: Language, folder: Path) -> None:
    """Writes every task into a folder of its name."""
    for name in SHIPPED:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for split, lines in rows(language, name).items():
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / name / f"{split}.jsonl").write_text(text)


def texts(said: Sentences) -> list[str]:
    """Formats sentences as texts, in the order of their last axis."""
    words = np.asarray(said.words)
    rows = words.reshape(-1, words.shape[-1]).tolist()
    return [
        " ".join(v.VOCABULARY[w] for w in row[:count])
        for row, count in zip(rows, np.ravel(said.length).tolist(), strict=True)
    ]
