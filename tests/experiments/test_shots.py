"""The in-context curve of a checkpoint: intervals, records, and the way through."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments import shots
from experiments.prune_llm.subject import TaskDraw
from experiments.shots.curve import curve, differences, point
from experiments.shots.main import main
from experiments.shots.measure import KEY, correct, measure
from icltheory.bridge import clip_module, load_checkpoint
from icltheory.bridge.evaluation import evaluate_naive, evaluation_of
from icltheory.bridge.records import Records

RNG = np.random.default_rng(0)


def test_orders_are_averaged_and_differences_paired():
    right = RNG.random((2, 3, 4, 50)) < 0.6  # shots, seeds, orders, questions
    found = curve(right, True, 0.95)
    np.testing.assert_allclose([e.mean for e in found.shots], right.mean((1, 2, 3)))
    rise = right[1].astype(float) - right[0]
    assert found.rise == point(rise.mean(1), True, 0.95)
    assert found.draws.shape == (12, 2)
    np.testing.assert_allclose(found.draws[5], right[:, 1, 1].mean(-1))
    assert all(0 <= e.low <= e.high <= 1 for e in found.shots)
    changes = differences(right, ~right, True, 0.95)
    np.testing.assert_allclose([c.mean for c in changes], 1 - 2 * right.mean((1, 2, 3)))


def test_records_become_an_array_whatever_their_order(tmp_path):
    config = dataclasses.replace(
        shots.PRESETS["tiny"],
        shots=(0, 16),
        demonstration_seeds=(3, 1, 2),
        orders=(0, 7),
    )
    right = RNG.random((2, 3, 2, 5)) < 0.5
    lines = []
    for place in np.ndindex(right.shape):
        s, d, o, example = place
        key = ("toy", (0, 16)[s], (3, 1, 2)[d], (0, 7)[o], 0.0, example)
        lines.append(
            dict(zip(KEY, key, strict=True))
            | {"prediction": int(right[place]), "label": 1, "tied": False}
        )
    RNG.shuffle(lines)
    records = Records(tmp_path / "records.jsonl", KEY, config={})
    records.append(lines)
    np.testing.assert_array_equal(correct(config, records, "toy", 0.0), right)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shots": (4,)}, "shots: expected two numbers"),
        ({"demonstration_seeds": (0, 1)}, "demonstration_seeds: expected 3 draws or"),
        ({"shots": (4, 0)}, "ascending"),
        ({"shots": (-1, 4)}, "shots: expected numbers >= 0"),
        ({"rate": 1.0}, "rate"),
        ({"level": 1.5}, "level"),
    ],
)
def test_configs_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(shots.PRESETS["tiny"], **changes)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small language model that has learnt nothing, and its tasks."""
    pytest.importorskip("tokenizers")
    pytest.importorskip("safetensors")
    from experiments.small_lm import checkpoint
    from experiments.small_lm.config import Config
    from experiments.small_lm.model import decoder_of

    folder = tmp_path_factory.mktemp("small_lm")
    config = dataclasses.replace(Config(), width=16, num_layers=2, mlp_width=24)
    params = decoder_of(config).init(jax.random.key(0))
    params = jax.tree.map(lambda w: 12 * w if w.ndim == 2 else w, params)
    checkpoint.save(config, params, folder / "checkpoint")
    for name, classes in (("topic", 4), ("nonce", 2)):
        write_task(folder / "tasks" / name, classes)
    return folder


def write_task(folder, classes):
    """Files of random words of the small language, labels in turn."""
    from experiments.small_lm.vocabulary import VOCABULARY

    rng = np.random.default_rng(classes)
    words = [word for word in VOCABULARY if word.isalpha()]
    folder.mkdir(parents=True)
    for split, count in (("train", 32), ("validation", 12), ("test", 4)):
        texts = (" ".join(rng.choice(words, 4)) for _ in range(count))
        lines = (
            json.dumps({"text": text, "label": i % classes})
            for i, text in enumerate(texts)
        )
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")


def arguments(folder, output):
    text = (
        f"--checkpoint {folder}/checkpoint --task-folder {folder}/tasks --examples 8 "
        f"--tasks topic nonce --shots 0 2 4 --demonstration-seeds 0 1 2 --orders 0 1 "
        f"--rate 0.5 --output {output}"
    )
    return text.split()


def test_from_a_checkpoint_to_curves_and_on_after_an_interruption(checkpoint, tmp_path):
    result = main(arguments(checkpoint, tmp_path))
    (run,) = (tmp_path / "shots").iterdir()
    assert result == json.loads((run / "result.json").read_text())
    assert result["answered"] == 2 * 3 * 3 * 2
    assert (run / "shots.png").stat().st_size > 10_000
    assert len(result["checks"]) == 2  # of nonce, which the preset expects to rise
    assert all(check["name"].startswith("nonce") for check in result["checks"])
    topic = result["tasks"]["topic"]
    assert topic["chance"] == 0.25
    assert topic["same_questions"]
    # Without demonstrations their choice and order change nothing.
    zero = np.array(topic["rate 0"]["draws"])[:, 0]
    assert set(zero) == {topic["rate 0"]["shots"]["0"]["mean"]}

    path = run / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    size = 2 * 8  # answers of a case, at both rates
    path.write_bytes(b"".join(lines[: 1 + 5 * size]) + lines[-1][:20])
    again = main(["--resume", str(run)])
    assert again["answered"] == 36 - 5
    assert again["tasks"] == result["tasks"]
    assert again["checks"] == result["checks"]
    assert main(["--resume", str(run)])["answered"] == 0


@pytest.mark.slow
def test_what_is_recorded_is_what_the_plain_way_answers(checkpoint, tmp_path):
    from experiments.prune_llm.subject import load
    from experiments.shots.measure import records_of

    config = dataclasses.replace(
        shots.PRESETS["tiny"],
        checkpoint=str(checkpoint / "checkpoint"),
        task_folder=str(checkpoint / "tasks"),
        tasks=("topic",),
        shots=(0, 3),
        demonstration_seeds=(1, 2, 3),
        orders=(5,),
        rate=0.5,
        layer=0,
        module="attn",
        examples=6,
    )
    subject = load(config.subject())
    records = records_of(config, subject, tmp_path / "records.jsonl")
    assert list(measure(config, subject, records)) == list(subject.tasks)
    model = load_checkpoint(checkpoint / "checkpoint")
    pruned = clip_module(model, 0, "attn", 0.5)
    task = subject.tasks[TaskDraw("topic", 3, 1, 5)]
    for rate, one in ((0.0, model), (0.5, pruned)):
        plain = evaluate_naive(one, task, "validation", 3)
        found = records.table("prediction", task="topic", rate=rate, shots=3, seed=1)
        np.testing.assert_array_equal(found.values[0], plain.predictions)
    # Another model's records are refused.
    other = dataclasses.replace(subject, digest="another")
    with pytest.raises(ValueError, match="weights"):
        records_of(config, other, tmp_path / "records.jsonl")


def test_a_curve_that_rises_passes_and_a_flat_one_fails():
    from experiments.shots.report import TaskFindings, _checks

    def checks(accuracies):
        rng = np.random.default_rng(2)
        chances = np.array(accuracies)[:, None, None, None]
        right = rng.random((len(accuracies), 5, 2, 200)) < chances
        curves = {0.0: curve(right, True, 0.95)}
        one = TaskFindings(curves, (), 0.5, 0.5, 200, True, 0, 0, "")
        return [check.passed for check in _checks("toy", one)]

    assert checks([0.5, 0.7, 0.9]) == [True, True]
    assert checks([0.5, 0.5, 0.5]) == [False, False]
    assert checks([0.9, 0.7, 0.5]) == [False, False]


@pytest.mark.slow
def test_ties_and_missing_answers_are_counted():
    from experiments.shots.measure import _lines

    scores = np.array([[1.0, 1.0], [0.0, 2.0], [np.nan, 1.0]])
    lines = list(_lines({"task": "toy"}, evaluation_of(scores, np.array([0, 1, 1]))))
    assert [line["tied"] for line in lines] == [True, False, False]
    assert [line["prediction"] for line in lines] == [0, 1, -1]
