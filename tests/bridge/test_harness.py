"""lm-evaluation-harness on our model class and on its own, of the same checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest

lm_eval = pytest.importorskip("lm_eval", reason="needs the extra lm-eval")
pytest.importorskip("torch", reason="compares with torch")
pytest.importorskip("transformers", reason="compares with transformers")
pytest.importorskip("accelerate", reason="HFLM of the harness needs it")

from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from icltheory.bridge import load_checkpoint  # noqa: E402
from icltheory.bridge.harness import harness_model  # noqa: E402

pytestmark = pytest.mark.slow
CHECKPOINT = Path(__file__).parents[2] / "experiments" / "small_lm" / "checkpoint"
WORDS = ("blick", "dax", "wug", "toma")
# The strings of the third task come up in what the model writes.
TASKS = {
    "choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}} :",
        "doc_to_choice": list(WORDS),
        "doc_to_target": "label",
        "num_fewshot": 4,
        "fewshot_split": "train",
        "fewshot_config": {"sampler": "first_n"},
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "text": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": m} for m in ("word_perplexity", "bits_per_byte")],
    },
    "words": {
        "output_type": "generate_until",
        "doc_to_text": "{{text}} :",
        "doc_to_target": "{{word}}",
        "generation_kwargs": {"until": ["\n", "e"], "max_gen_toks": 12},
        "metric_list": [{"metric": "exact_match"}],
    },
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A manager of three tasks that are made of files of this machine alone."""
    folder, rng = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0)
    vocabulary = json.loads((CHECKPOINT / "tokenizer.json").read_text())["model"]
    plain = sorted(w for w in vocabulary["vocab"] if w.isalpha())
    for split, count in (("train", 8), ("test", 24)):
        lines = []
        for number in range(count):
            text = " ".join(rng.choice(plain, rng.integers(3, 40)))
            row = {"text": text, "label": number % 4, "word": plain[number]}
            lines.append(json.dumps(row) + "\n")
        (folder / f"{split}.jsonl").write_text("".join(lines))
    files = {split: str(folder / f"{split}.jsonl") for split in ("train", "test")}
    for name, task in TASKS.items():
        whole = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": files},
            "test_split": "test",
            **task,
        }
        (folder / f"{name}.yaml").write_text(json.dumps(whole))
    return TaskManager(include_path=str(folder), include_defaults=False)


@pytest.fixture(scope="module")
def both(tasks):
    """What the harness found of our model, and of transformers'."""
    ours = harness_model(load_checkpoint(CHECKPOINT), batch_size=8)
    theirs = HFLM(str(CHECKPOINT), dtype="float32", device="cpu", batch_size=8)
    return [
        lm_eval.simple_evaluate(
            model, tasks=list(TASKS), task_manager=tasks, bootstrap_iters=0
        )
        for model in (ours, theirs)
    ]


@pytest.mark.parametrize("name", list(TASKS))
def test_scores_and_answers_are_those_of_the_torch_model(both, name):
    ours, theirs = both
    samples = [
        sorted(found["samples"][name], key=lambda s: s["doc_id"]) for found in both
    ]
    assert len(samples[0]) == 24
    for own, other in zip(*samples, strict=True):
        assert own["arguments"] == other["arguments"]
        if name == "words":
            assert own["resps"] == other["resps"]
            continue
        pairs = zip(own["resps"], other["resps"], strict=True)
        for (mine,), (its,) in pairs:
            if name == "choice":
                assert mine[1] == its[1]
                mine, its = mine[0], its[0]
            assert mine == pytest.approx(its, rel=1e-5, abs=1e-4)
    scores = [found["results"][name] for found in (ours, theirs)]
    for metric, value in scores[0].items():
        if isinstance(value, float):
            assert value == pytest.approx(scores[1][metric], rel=1e-5)


def test_a_task_that_samples_is_refused(tasks):
    ours = harness_model(load_checkpoint(CHECKPOINT))
    with pytest.raises(ValueError, match="generation: expected a task that is greedy"):
        lm_eval.simple_evaluate(
            ours,
            tasks=["words"],
            task_manager=tasks,
            gen_kwargs={"do_sample": True, "temperature": 0.7},
        )
