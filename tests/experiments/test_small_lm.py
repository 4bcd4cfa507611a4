"""The small language model: its language, its checkpoint, and what it has learned."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from experiments import small_lm
from experiments.frame.command_line import parse
from experiments.shared import language as v
from experiments.shared.language import Language
from experiments.small_lm import QUESTIONS
from icltheory.bridge import evaluate, load_checkpoint
from icltheory.bridge.tasks import check_overlap, load_task

documents = jax.jit(v.documents, static_argnums=(1, 2, 3, 4))
sentences = jax.jit(v.sentences, static_argnums=(1, 3))
start = jax.jit(small_lm.start, static_argnums=0)
HERE = small_lm.FOLDER.parent
LANGUAGE, CPU = Language(), small_lm.PRESETS["cpu"]
SMALL = """
    --preset cpu --width 8 --num-layers 1 --num-heads 2 --num-kv-heads 1 --mlp-width 8
    --steps 6 --chunk-steps 3 --checkpoint-every 3
    --lengths 12 20 32 --batch-sizes 2 2 2 --optimizer.warmup-steps 2
    --demonstration-seeds 2 --queries 3 --shots 0 1 3
"""
TINY = parse(small_lm.PRESETS, SMALL.split()).config
SUBJECTS = np.arange(21_000) % 3


def assert_share(drawn, probability):
    error = math.sqrt(probability * (1 - probability) / drawn.size)
    assert drawn.mean() == pytest.approx(probability, abs=5 * error)


# --- the language


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 0.4, 1.0])
def test_training_never_sees_a_held_out_sentence(key, spread):
    for held_out in (True, False):
        said = sentences(key, LANGUAGE, SUBJECTS, held_out, spread)
        words, length = np.asarray(said.words), np.asarray(said.length)
        there = np.arange(words.shape[-1]) < length[:, None]
        assert ((np.where(there, words, 0).sum(-1) % 5 == 0) == held_out).all()


def test_a_sentence_says_its_classes_and_its_subject(key):
    said = sentences(key, LANGUAGE, SUBJECTS, True)
    lists = (np.asarray(said.words) - v.FIRST_WORD) // 20
    there = np.arange(LANGUAGE.most_words) < np.asarray(said.length)[:, None]
    stray = (1 - LANGUAGE.focus) / 4
    for a, (first, count) in enumerate(zip(v.FIRST_LIST, v.NUM_CLASSES, strict=True)):
        own = there & (lists >= first) & (lists < first + count)
        right = (lists - first == np.asarray(said.classes)[:, a, None])[own]
        assert_share(right, 1 - LANGUAGE.noise)
        about = np.equal(SUBJECTS, a)[:, None]
        assert_share(own[about & there], LANGUAGE.focus + stray)
        assert_share(own[~about & there], stray)


def test_held_out_pairs_of_nonce_words_never_meet_in_training(key):
    for held_out, groups in ((False, 4), (True, 1)):
        words = np.asarray(v.nonce_labels(key, 2000, held_out)) - v.FIRST_NONCE
        assert (words.min(), words.max()) == (0, 31)
        assert all(len(set(row)) == 4 for row in words.tolist())
        assert {len(set(row)) for row in (words // 4).tolist()} == {groups}


@pytest.mark.slow
def test_a_document_reads_as_it_is_written(key):
    drawn = documents(key, LANGUAGE, 6, 4, 64)
    ids, mask = np.asarray(drawn.ids), np.asarray(drawn.mask)
    for row in range(6):
        words = [v.VOCABULARY[i] for i in ids[row, mask[row]]]
        assert words[0] == "<s>"
        parts = [p.strip() for p in " ".join(words[1:]).strip().split("\n")]
        assert len(parts) == 4
        marked = ids[row, np.asarray(drawn.is_label)[row]]
        labels = [line.split(" : ")[1] for line in parts]
        assert [v.VOCABULARY[i] for i in marked] == labels
        counts = [len(line.split(" : ")[0].split()) for line in parts]
        # Half of the documents are of the whole language.
        assert min(counts) >= (LANGUAGE.fewest_words if row % 2 == 0 else 1)
        assert max(counts) <= LANGUAGE.most_words
        assert not ids[row, ~mask[row]].any()
    cut = documents(key, LANGUAGE, 6, 4, 20)
    for long, short in zip(drawn, cut, strict=True):
        np.testing.assert_array_equal(long[:, :20], short)
    # Label noise changes labels alone.
    noisy = documents(key, dataclasses.replace(LANGUAGE, label_noise=0.9), 6, 4, 64)
    changed = np.asarray(noisy.ids) != ids
    assert changed.any()
    assert not (changed & ~np.asarray(drawn.is_label)).any()


def test_a_wrong_label_is_that_of_another_class_of_its_document(key):
    truth = np.tile([[0, 1], [3, 1], [2, 0]], (1000, 1))
    count = np.tile([2, 2, 4], 1000)
    known = np.tile([[0, 1, 2, 3], [3, 1, 3, 1], [2, 3, 0, 1]], (1000, 1))
    stated = np.asarray(jax.jit(v.mislabelled)(key, 0.25, truth, count, known))
    assert_share(stated != truth, 0.25)
    for kind in range(3):
        own = slice(kind, None, 3)
        assert set(np.unique(stated[own])) == set(known[kind][: count[kind]])


def test_the_ideal_learner_counts_words_and_ties_are_chance():
    # Two words for the first class of sentiment, one for the second; one of topic.
    words = np.array([[[5, 6, 25, 105], [5, 25, 105, 0], [25, 105, 0, 0]]])
    classes = np.array([[[0, 0, 0], [0, 0, 0], [0, 0, 1]]])
    asks = v.Sentences(words, np.array([[4, 3, 2]]), classes)
    found = small_lm.informed(LANGUAGE, asks, 0)
    np.testing.assert_allclose(found, [(1 + 1 / 2 + 0) / 3])
    np.testing.assert_allclose(small_lm.informed(LANGUAGE, asks, 2), [1 / 3])


# --- the model


def test_a_saved_model_is_loaded_as_it_was(tmp_path):
    pytest.importorskip("tokenizers")
    params = start(TINY, jax.random.key(3))
    params = jax.tree.map(lambda x: np.asarray(x, np.float32), params)
    loaded = load_checkpoint(small_lm.save(TINY, params, tmp_path))
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
    assert loaded.arch == small_lm.decoder_of(TINY).arch
    encode = loaded.tokenizer.encode
    text = "good match : blick\nfrost unheard : pos\n"
    words = ["<s>", "good", "match", ":", "blick", "\n", "frost", "<unk>", ":"]
    expected = [v.ID[word] for word in [*words, "<unk>", "\n"]]
    assert encode(text) == expected
    assert encode(" blick", special=False) == [v.ID["blick"]]
    # A prompt may be cut before a label: the parts have the tokens of the whole.
    assert encode("good match :") == expected[:4]


def test_weights_are_rounded_to_sixteen_bits():
    found = small_lm.rounded({"W": jax.numpy.array([1 + 2.0**-9, 0.1], "float32")})["W"]
    assert found.dtype == "float32"
    assert (np.asarray(found).view(np.uint32) % 2**16 == 0).all()
    np.testing.assert_allclose(found, [1, 0.1], rtol=2.0**-8)


@pytest.mark.slow
def test_the_loss_counts_labels_and_a_little_of_the_rest(key):
    config = dataclasses.replace(TINY, text_weight=0.25)
    zero = jax.tree.map(np.zeros_like, start(config, key))
    drawn = documents(key, LANGUAGE, 6, 4, 64)
    value, parts = jax.jit(small_lm.make_loss(config))(zero, drawn)
    # With no weights all words are equally likely.
    assert parts["label_loss"] == pytest.approx(math.log(len(v.VOCABULARY)), rel=1e-6)
    assert value == pytest.approx(1.25 * math.log(len(v.VOCABULARY)), rel=1e-6)


# --- the run


@pytest.mark.slow
def test_a_small_run_writes_everything_it_promises(small_run):
    pytest.importorskip("tokenizers")
    folder, result, _ = small_run(small_lm, SMALL)
    assert (folder / "in_context_curves.png").stat().st_size > 10_000
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    assert set(result["curves"]) == set(QUESTIONS)
    curve = result["curves"]["topic"]["model"]
    assert len(curve["mean"]) == len(curve["standard_error"]) == 3
    loaded = load_checkpoint(folder / "checkpoint")
    assert loaded.logits(np.array([[v.START, v.COLON]])).shape[-1] == len(v.VOCABULARY)
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(loaded.params))
    assert size == result["parameters"]
    # The tasks beside the experiment are made by its recipe.
    files = sorted(p.relative_to(folder) for p in folder.rglob("*.jsonl"))[1:]
    assert len(files) == 3 * len(small_lm.SHIPPED)
    for file in files:
        assert (HERE / file).read_bytes() == (folder / file).read_bytes()
    assert small_lm.main(["--resume", str(folder)])["curves"] == result["curves"]


def test_every_difference_is_checked_draw_by_draw():
    rising = np.array([[0.5, 0.7, 0.95], [0.5, 0.6, 0.9], [0.5, 0.8, 0.95]])
    known = {"model": np.full((3, 3), 0.9), "informed": np.full(3, 0.95)}
    told = {"model": rising, "informed": np.full(3, 0.96)}
    found = {name: known if meant else told for name, (_, meant) in QUESTIONS.items()}
    made = small_lm.checks(CPU, found)
    assert len(made) == 10
    assert all(check.passed for check in made)
    curve = small_lm.summary(rising, 0.95)
    np.testing.assert_allclose(curve["mean"], [0.5, 0.7, 2.8 / 3])
    error = np.std([0.7, 0.6, 0.8], ddof=1) / 3**0.5
    assert curve["standard_error"][1] == pytest.approx(error)
    above = {**found, "topic": {**known, "informed": np.full(3, 0.5)}}
    assert sum(not check.passed for check in small_lm.checks(CPU, above)) == 1


# --- what is shipped


@pytest.fixture(scope="module")
def shipped():
    pytest.importorskip("tokenizers")
    return load_checkpoint(HERE / "checkpoint")


def test_the_shipped_checkpoint_fits_the_recipe(shipped):
    assert shipped.config.items() >= CPU.hugging_face().items()
    assert shipped.tokenizer.vocab_size == len(v.VOCABULARY)
    size = sum(path.stat().st_size for path in (HERE / "checkpoint").iterdir())
    assert size < 2e6


@pytest.mark.slow
def test_the_shipped_checkpoint_learns_in_context(shipped):
    sizes = {"shots": (0, 8), "demonstration_seeds": 12, "queries": 16}
    found = small_lm.curves(dataclasses.replace(CPU, **sizes), shipped.params)
    for name, (place, meant) in QUESTIONS.items():
        first, last = found[name]["model"].T
        # Label words are drawn anew, so that without shots nothing beats chance.
        tested = first if meant else last
        # Student's t of 11 degrees of freedom: 99.9 %, one-sided
        least = tested.mean() - 4.02 * tested.std(ddof=1) / len(tested) ** 0.5
        assert least > 1 / v.NUM_CLASSES[place] + 0.3, name


@pytest.mark.slow
@pytest.mark.parametrize("name", small_lm.SHIPPED)
def test_the_bridge_evaluates_the_shipped_tasks(shipped, name):
    task = load_task(small_lm.declaration(name), small_lm.FOLDER / name)
    assert len(task.demonstrations) == small_lm.DEMONSTRATIONS
    assert not check_overlap(name, task.demonstrations, task.test)
    assert not check_overlap(name, task.validation, task.test)
    none, many = (evaluate(shipped, task, shots=k) for k in (0, 16))
    assert none.num_examples == many.num_examples == small_lm.ROWS["validation"]
    assert many.accuracy > 0.85
    if name == "nonce":
        # Chance, which is 128 of 256, is 8 standard deviations of 1 / 32 below 0.75.
        assert none.accuracy < 0.75
