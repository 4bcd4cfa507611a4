"""The experiment on a real model: a run on a tiny one, and what its report says."""

import dataclasses
import json

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from experiments.real_model.config import PRESETS, PROMPTS, Config
from experiments.real_model.main import main
from experiments.real_model.measure import Subject, layer_of
from experiments.real_model.report import report
from icltheory.bridge import AnswerFile, Decoder, load_checkpoint
from icltheory.bridge.spectra import ConditionNumber
from tests.bridge import tasks_data
from tests.bridge.tiny import config_of, model_of, tensors_of, write
from tests.raising import raises

OPTIONS = (
    "--tasks cb copa --shots 0 2 --most-shots 4 --examples 4 --search-examples 6 "
    "--test-examples 6 --grid-rates 0.5 --rates 0 0.5 0.9 --draws 2 --layers 0 1 "
    "--arms algorithm1 algorithm1_kv random_layer activation magnitude random_vectors "
    "scale temperature --update-queries 2 --update-shots 1 2 --top-k 1"
)


def byte_tokenizer():
    """GPT-2's kind with a token for each byte, and nothing in front of a text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tiny checkpoint that reads bytes, and the data of two tasks."""
    place = tmp_path_factory.mktemp("real")
    changes = {"vocab_size": 256, "max_position_embeddings": 2048}
    model = model_of("llama", **changes)
    checkpoint = write(place / "tiny", config_of("llama", **changes), tensors_of(model))
    byte_tokenizer().save(str(checkpoint / "tokenizer.json"))
    for name in ("cb", "copa"):
        (place / "data" / name).mkdir(parents=True)
        tasks_data.WRITERS[name](place / "data" / name)
    return checkpoint, place / "data", place / "runs"


@pytest.mark.slow
def test_a_run_answers_everything_once_and_its_choices_are_its_own(folders):
    checkpoint, data, runs = folders
    places = f"--checkpoint={checkpoint} --task-folder={data} --output={runs}".split()
    found = main(["--preset=quick", *places, *OPTIONS.split()])
    (run,) = (runs / "real_model").iterdir()
    assert found["passed"]  # at rate 0 the implicit updates are those of the model
    rows = found["searches"]
    # two draws of Algorithm 1, and seven other arms of which two are for attention
    assert len(rows) == 2 * (2 * 2 + 5 + 7)
    for row in rows:
        best = max(row["validation"])
        assert row["chosen"] == (0, 0.5, 0.9)[row["validation"].index(best)]
        assert row["after"] - row["before"] == pytest.approx(row["difference"])
    for row in found["together"]:
        grid = json.loads((run / "grid.json").read_text())
        (other,) = {"cb", "copa"} - {row["left_out"]}
        gains = [
            np.mean(grid[other][module][layer]) - np.mean(grid[other]["unpruned"])
            for layer in ("0", "1")
            for module in ("mlp", "attn")
        ]
        assert row["validation_gain"] == pytest.approx(max(gains))
    answers = list(AnswerFile(run / "answers.sqlite"))
    (run / "searches.json").unlink()
    again = main([f"--resume={run}", f"--task-folder={data}"])
    assert again["searches"] == rows
    assert str(list(AnswerFile(run / "answers.sqlite"))) == str(answers)


def made_up(rng):
    """Parts of a run with one task that pruning helps and one that it harms."""
    config, layers = PRESETS["quick"], range(3)

    def right(share, *shape):
        return (rng.random(shape) < share).astype(int).tolist()

    prompts, curves, grid, updates = ({} for _ in range(4))
    for name in config.tasks:
        chosen = ["paper+paper", "pmi"]
        prompts[name] = {"rows": [[*chosen, 0.5]], "chosen": [name, *chosen]}
        shots = {"shots": [0, 4], "right": [right(0.3, 2, 200), right(0.9, 2, 200)]}
        curves[name] = shots | {"majority": 0.5, "classes": 2}
        grid[name] = {"unpruned": right(0.5, 40)}
        pruned = {str(layer): {} for layer in layers}
        for module in config.modules:
            each = {str(layer): right(0.2 + 0.3 * layer, 2, 40) for layer in layers}
            grid[name][module] = each
            for layer in layers:
                rates = [[1.0] * 8, [0.5 - 0.1 * layer] * 8, [0.2] * 8]
                pruned[str(layer)][module] = rates
        shots = {"4": rng.random((3, 8)).tolist()}
        updates[name] = {"shots": shots, "pruned": pruned}
    matrices = [
        {"layer": layer, "module": module, "matrix": matrix}
        | {"condition_number": 10.0 * (1 + layer), "null_ratio": 1.0 + layer}
        for layer in layers
        for module, matrix in (("mlp", "W_in"), ("attn", "W_Q"))
    ]
    tested = {"gained": 30, "lost": 5, "before": 0.5, "after": 0.6953125}
    harmed = {"gained": 2, "lost": 40, "before": 0.5, "after": 0.203125}
    common = {"questions": 128, "layer": 2, "validation": [0.5, 0.6, 0.5, 0.5]}
    searches = [
        {"task": task, "draw": 0, "module": module, "arm": arm}
        | {"chosen": 0.5 if arm == "algorithm1" else 0.0, **common, **counts}
        for task, counts in zip(config.tasks, (tested, harmed), strict=True)
        for module in config.modules
        for arm in ("algorithm1", "scale")
    ]
    together = [
        {"left_out": task, "module": "mlp", "rate": 0.5, "validation_gain": 0.1}
        | {**common, **tested}
        for task in config.tasks
    ]
    found = {"prompts": prompts, "curves": curves, "conditions": matrices, "grid": grid}
    more = {"searches": searches, "together": together, "updates": updates}
    return config, found | more


def test_the_report_compares_what_the_paper_claims():
    config, found = made_up(np.random.default_rng(0))
    made = report(config, found, {"source": "made up", "digest": ""})
    assert made.passed
    held = {claim.claim: claim for claim in made.claims}
    assert held["accuracy rises with the number of demonstrations"].held
    assert held["deep layers can be pruned at higher rates than shallow ones"].held
    gains = held["Algorithm 1 gains on the test set"]
    assert not gains.held
    assert "in 2 of 4 searches after Holm, worse in 2" in gains.measured
    beside = held["Algorithm 1 gains more than one factor on the layer's output"]
    assert "gains -0.051" in beside.measured
    algorithm1, scaled = made.numbers["searches"][:2]
    assert algorithm1["difference"] == pytest.approx(25 / 128)
    assert (scaled["difference"], scaled["holm"]) == (0, None)  # it chose no pruning
    arms = {(row["module"], row["search"]): row for row in made.numbers["arms"]}
    assert arms["mlp", "Algorithm 1"]["mean"] == pytest.approx((25 - 38) / 2 / 128)
    assert arms["mlp", "Algorithm 1"]["better"] == 1
    assert arms["mlp", "Algorithm 1"]["worse"] == 1
    assert "arms.png" in made.figures
    # As in parallel blocks, whose first MLP sees no demonstrations.
    first = {module: np.zeros((3, 8)).tolist() for module in config.modules}
    found["updates"]["sst2"]["pruned"]["0"] = first
    assert report(config, found, {}).numbers["remark_4"][0]["tau"][0] != 0
    assert made.numbers["published"] == []
    compared = report(config, found, {}, "GPT-J-6B")
    titles = [table.title for table in compared.tables]
    assert "beside Tables 2 to 8 of the paper" in titles
    assert len(compared.numbers["published"]) == 4
    found["updates"]["sst2"]["pruned"]["1"]["mlp"][0][3] = 0.9
    assert not report(config, found, {}).passed


def test_a_rare_class_is_shared_by_demonstrations_and_questions(tmp_path):
    (tmp_path / "cb").mkdir()
    for split, rows in (("train", (115, 119, 16)), ("val", (23, 28, 5))):
        labels = ("entailment", "contradiction", "neutral")
        lines = [
            json.dumps({"premise": f"{name} {i}.", "hypothesis": "h", "label": name})
            for name, count in zip(labels, rows, strict=True)
            for i in range(count)
        ]
        (tmp_path / "cb" / f"{split}.jsonl").write_text("\n".join(lines))
    subject = object.__new__(Subject)
    subject.config, subject.task_folder = Config(), tmp_path
    shown = set()
    for draw in range(3):
        task = subject.task("cb", "paper+paper", "pmi", draw)
        assert len(task.demonstrations) == 15 == subject.shots("cb")
        assert sum(example.label == 2 for example in task.validation) > 3
        parts = task.demonstrations, task.validation
        places = [{example.index for example in part} for part in parts]
        assert places[0].isdisjoint(places[1])
        shown.add(frozenset(places[0]))
    assert len(shown) == 3


def test_a_task_that_no_prompt_asks_is_refused(folders):
    checkpoint, data, _ = folders
    subject = object.__new__(Subject)
    subject.config = Config(most_shots=4, update_shots=(1, 2), draws=2)
    subject.task_folder = data
    model = load_checkpoint(checkpoint)
    short = dataclasses.replace(model.arch, max_positions=16)
    subject.model = model.replace(decoder=Decoder(short))
    with raises("tasks: expected tasks that this model can answer, got copa, where no"):
        subject.prompts("copa")


def test_keys_and_values_choose_a_layer_without_queries_and_outputs():
    peaks = {"W_Q": (3, 9.0), "W_K": (1, 5.0), "W_V": (0, 2.0), "W_O": (2, 8.0)}
    rows = [
        dict.fromkeys(ConditionNumber._fields[:-1], 0)
        | {"layer": layer, "module": "attn", "matrix": matrix}
        | {"condition_number": peak if layer == place else 1.0}
        for layer in range(4)
        for matrix, (place, peak) in peaks.items()
    ]
    config = Config(top_k=1)
    chosen = [
        layer_of(config, rows, "attn", arm, "cb", 4)
        for arm in ("algorithm1", "algorithm1_kv")
    ]
    assert chosen == [3, 1]


def test_every_task_has_a_second_prompt_and_wrong_configs_are_refused():
    assert set(PROMPTS) == set(Config().tasks)
    with raises("tasks: expected some of sst2, agnews"):
        Config(tasks=("sst3",))
    with raises("arms: expected algorithm1 among them"):
        Config(arms=("scale",))
    with raises("rates: expected ascending rates that begin with 0"):
        Config(rates=(0.5,))
    with raises("update_shots: expected at most 4"):
        Config(most_shots=4)
