"""The small language model: its language, its checkpoint, and what it has learned."""

import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments import small_lm
from experiments._trained import Timing
from experiments.small_lm import checkpoint, ideal, tasks
from experiments.small_lm import language as drawing
from experiments.small_lm import model as models
from experiments.small_lm import vocabulary as v
from experiments.small_lm.config import PRESETS, Config, SentenceCurriculum
from experiments.small_lm.curve import QUESTIONS, Curves, curves
from experiments.small_lm.language import Language, Sentences
from experiments.small_lm.main import main
from experiments.small_lm.model import decoder_of
from experiments.small_lm.train import initial_state, make_loss, make_step
from icltheory.bridge import load_checkpoint
from icltheory.bridge.evaluation import evaluate
from icltheory.bridge.tasks import load_task
from icltheory.training import OptimizerConfig

compose = jax.jit(drawing.compose, static_argnums=3)
documents = jax.jit(drawing.documents, static_argnums=(1, 2, 3, 4))
mislabelled = jax.jit(drawing.mislabelled)
nonce_labels = jax.jit(drawing.nonce_labels, static_argnums=(1, 2))
sentences = jax.jit(drawing.sentences, static_argnums=(1, 3))
start = jax.jit(models.start, static_argnums=0)
HERE = Path(small_lm.__file__).parent
LANGUAGE = Language()
TINY = Config(
    width=8,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    mlp_width=8,
    steps=4,
    lengths=(12, 20, 32),
    batch_sizes=(2, 2, 2),
    optimizer=OptimizerConfig("adam", 1e-2),
    demonstration_seeds=2,
    queries=2,
)
SUBJECTS = np.arange(21_000) % 3
SMALL = """
    --preset cpu --width 8 --num-layers 1 --num-heads 2 --num-kv-heads 1 --mlp-width 8
    --steps 6 --chunk-steps 3 --checkpoint-every 3
    --lengths 12 20 32 --batch-sizes 2 2 2 --optimizer.warmup-steps 2
    --demonstration-seeds 2 --queries 3 --shots 0 1 3
"""


_sentences = jax.jit(sentences, static_argnames=("language", "held_out"))


def speak(key, held_out, spread=1.0, hardness=1.0):
    """Sentences about ``SUBJECTS``."""
    return _sentences(key, LANGUAGE, SUBJECTS, held_out, spread, hardness)


def sums(said):
    words, length = np.asarray(said.words), np.asarray(said.length)
    return np.where(np.arange(words.shape[-1]) < length[..., None], words, 0).sum(-1)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 0.4, 1.0])
def test_training_never_sees_a_held_out_sentence(key, spread):
    for held_out in (True, False):
        said = speak(key, held_out, spread)
        assert ((sums(said) % 5 == 0) == held_out).all()


@pytest.mark.slow
def test_words_of_held_out_sentences_are_as_frequent_as_others(key):
    counts = []
    for k, held_out in zip(jax.random.split(key), (True, False), strict=True):
        said = speak(k, held_out)
        there = np.arange(LANGUAGE.most_words) < np.asarray(said.length)[:, None]
        counts.append(np.bincount(np.asarray(said.words)[there], minlength=205)[5:205])
    rest, held = counts[1], counts[0]
    assert rest.min() > 0
    # Two independent counts of the same distribution
    scores = (held - rest) / np.sqrt(held + rest)
    assert np.abs(scores).max() < 5
    assert scores.std() == pytest.approx(1, abs=0.25)


def test_a_sentence_says_its_classes_and_its_subject(key):
    said = speak(key, held_out=True)
    lists = (np.asarray(said.words) - v.FIRST_WORD) // 20
    there = np.arange(LANGUAGE.most_words) < np.asarray(said.length)[:, None]
    noise, stray = LANGUAGE.noise, (1 - LANGUAGE.focus) / 4
    for a, (first, count) in enumerate(zip(v.FIRST_LIST, v.NUM_CLASSES, strict=True)):
        own = there & (lists >= first) & (lists < first + count)
        right = (lists - first == np.asarray(said.classes)[:, a, None])[own]
        assert_share(right, 1 - noise)
        assert_share(
            own[np.equal(SUBJECTS, a)[:, None] & there], LANGUAGE.focus + stray
        )
        assert_share(own[np.not_equal(SUBJECTS, a)[:, None] & there], stray)


def assert_share(drawn, probability):
    error = math.sqrt(probability * (1 - probability) / drawn.size)
    assert drawn.mean() == pytest.approx(probability, abs=5 * error)


def test_the_easiest_sentences_are_short_and_about_their_subject(key):
    about, said = SUBJECTS, speak(key, held_out=False, hardness=0.0)
    assert set(np.asarray(said.length).tolist()) == {1, 2}
    classes = np.take_along_axis(np.asarray(said.classes), about[:, None], 1)
    first = np.asarray(v.FIRST_LIST)[about]
    lists = (np.asarray(said.words) - v.FIRST_WORD) // 20
    assert (lists[:, 0] == first + classes[:, 0]).all()


def test_held_out_pairs_of_nonce_words_never_meet_in_training(key):
    def groups(held_out):
        words = np.asarray(nonce_labels(key, 2000, held_out)) - v.FIRST_NONCE
        assert words.min() == 0
        assert words.max() == 31
        assert all(len(set(row)) == 4 for row in words.tolist())
        return {len(set(row)) for row in (words // 4).tolist()}

    assert groups(held_out=False) == {4}
    assert groups(held_out=True) == {1}


@pytest.mark.slow
def test_a_document_reads_as_it_is_written(key):
    drawn = documents(key, LANGUAGE, 6, 4, 64)
    ids, mask = np.asarray(drawn.ids), np.asarray(drawn.mask)
    for row in range(6):
        words = [v.VOCABULARY[i] for i in ids[row, mask[row]]]
        assert words[0] == "<s>"
        text = " ".join(words[1:])
        parts = [line.strip() for line in text.strip().split("\n")]
        assert len(parts) == 4
        labels = [line.split(" : ")[1] for line in parts]
        marked = ids[row, np.asarray(drawn.is_label)[row]]
        assert [v.VOCABULARY[i] for i in marked] == labels
        counts = [len(line.split(" : ")[0].split()) for line in parts]
        # Half of the documents are of the whole language.
        least = LANGUAGE.fewest_words if row % 2 == 0 else 1
        assert min(counts) >= least
        assert max(counts) <= LANGUAGE.most_words
        assert not ids[row, ~mask[row]].any()


@pytest.mark.slow
def test_documents_on_two_topics_know_any_two(key):
    language = dataclasses.replace(
        LANGUAGE, two_topics=0.999, meant=0.999, attribute_odds=(0.0, 0.0, 1.0)
    )
    drawn = documents(key, language, 64, 10, 100)
    is_label = np.asarray(drawn.is_label)
    pairs = {
        frozenset(row[marked].tolist())
        for row, marked in zip(np.asarray(drawn.ids), is_label, strict=True)
    }
    topics = [v.ID[word] for word in v.MEANT["topic"]]
    twos = {frozenset(pair) for pair in itertools.combinations(topics, 2)}
    assert twos <= pairs
    assert all(len(pair) <= 2 for pair in pairs)


@pytest.mark.slow
def test_label_noise_draws_nothing_that_changes_the_documents(key):
    plain = documents(key, LANGUAGE, 6, 4, 64)
    rare = documents(key, LANGUAGE.with_noise(1e-9), 6, 4, 64)
    jax.tree.map(np.testing.assert_array_equal, rare, plain)
    often = documents(key, LANGUAGE.with_noise(0.9), 6, 4, 64)
    changed = np.asarray(often.ids) != np.asarray(plain.ids)
    assert changed.any()
    assert not (changed & ~np.asarray(plain.is_label)).any()


def test_a_wrong_label_is_that_of_another_class_of_its_document(key):
    truth = np.tile([[0, 1], [3, 1], [2, 0]], (1000, 1))
    count = np.tile([2, 2, 4], 1000)
    known = np.tile([[0, 1, 2, 3], [3, 1, 3, 1], [2, 3, 0, 1]], (1000, 1))
    stated = np.asarray(mislabelled(key, 0.25, truth, count, known))
    wrong = stated != truth
    assert_share(wrong, 0.25)
    for kind in range(3):
        own = slice(kind, None, 3)
        assert set(np.unique(stated[own])) == set(known[kind][: count[kind]])
    others = stated[2::3][wrong[2::3]], truth[2::3][wrong[2::3]]
    for shift in (1, 2, 3):
        assert_share((others[0] - others[1]) % 4 == shift, 1 / 3)
    # The easiest documents have right labels only.
    easy = mislabelled(key, np.zeros((3000, 1)), truth, count, known)
    np.testing.assert_array_equal(easy, truth)


@pytest.mark.slow
def test_what_is_too_long_is_cut(key):
    whole = documents(key, LANGUAGE, 6, 4, 64)
    cut = documents(key, LANGUAGE, 6, 4, 20)
    for long, short in zip(whole, cut, strict=True):
        np.testing.assert_array_equal(long[:, :20], short)


@pytest.mark.slow
def test_the_tokenizer_reads_prompts_word_by_word(tmp_path):
    pytest.importorskip("tokenizers")
    checkpoint.save(TINY, start(TINY, jax.random.key(0)), tmp_path)
    tokenizer = load_checkpoint(tmp_path).tokenizer
    text = "good match : blick\nfrost unheard : pos\n"
    words = ["<s>", "good", "match", ":", "blick", "\n", "frost", "<unk>", ":"]
    expected = [v.ID[word] for word in [*words, "<unk>", "\n"]]
    assert tokenizer.encode(text) == expected
    assert tokenizer.encode(" blick", special=False) == [v.ID["blick"]]
    # A prompt may be cut before a label: the parts have the tokens of the whole.
    assert tokenizer.encode("good match :") == expected[:4]


def test_a_saved_model_is_loaded_as_it_was(tmp_path):
    pytest.importorskip("safetensors")
    params = start(TINY, jax.random.key(3))
    params = jax.tree.map(lambda x: np.asarray(x, np.float32), params)
    loaded = load_checkpoint(checkpoint.save(TINY, params, tmp_path))
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
    assert loaded.arch == decoder_of(TINY).arch
    assert not list(tmp_path.glob(".writing*"))


@pytest.mark.slow
def test_the_loss_counts_labels_and_a_little_of_the_rest(key):
    config = dataclasses.replace(TINY, text_weight=0.25)
    params = start(config, key)
    zero = jax.tree.map(np.zeros_like, params)
    drawn = documents(key, LANGUAGE, 6, 4, 64)
    value, parts = jax.jit(make_loss(config))(zero, drawn)
    # With no weights all words are equally likely.
    assert parts["label_loss"] == pytest.approx(math.log(len(v.VOCABULARY)), rel=1e-6)
    assert value == pytest.approx(1.25 * math.log(len(v.VOCABULARY)), rel=1e-6)


@pytest.mark.slow
def test_a_step_depends_on_the_seed_and_the_step_alone():
    step = jax.jit(make_step(TINY))
    one, metrics = step(initial_state(TINY))
    again, same = step(initial_state(TINY))
    jax.tree.map(np.testing.assert_array_equal, one.params, again.params)
    assert metrics["loss"] == same["loss"]
    other, _ = step(initial_state(dataclasses.replace(TINY, seed=1)))
    assert (other.params["embed"]["tokens"] != one.params["embed"]["tokens"]).any()


def test_reading_is_bayes_rule():
    # Two words for the first class of sentiment, one for the second; one of topic, one
    # of nothing.
    language = Language(focus=0.6, noise=0.1)
    words = np.array([[5, 6, 25, 105, 165, 0]])
    said = Sentences(words, np.array([5]), np.zeros((1, 3), int))
    found = ideal.read(language, said)
    sentiment, season, topic = found.classes
    np.testing.assert_allclose(sentiment, [[0.9, 0.1]], rtol=1e-12)
    np.testing.assert_allclose(season, [[0.5, 0.5]], rtol=1e-12)
    weights = np.array([0.1 / 3, 0.9, 0.1 / 3, 0.1 / 3])
    np.testing.assert_allclose(topic, weights[None] / weights.sum(), rtol=1e-12)
    chances = [0.7**3 * 0.1**2, 0.1**5, 0.7 * 0.1**4]
    np.testing.assert_allclose(np.exp(found.subject), [chances], rtol=1e-12)


def test_the_ideal_learner_weighs_tasks_by_the_demonstrations():
    def reading(first, second):
        return ideal.Reading(
            (np.array([first]), np.array([second])), np.log([[0.2, 0.4]])
        )

    shown, asked = reading([0.9, 0.1], [0.5, 0.5]), reading([0.8, 0.2], [0.3, 0.7])
    tasks = [ideal.LanguageTask(a, (0, 1), 1.0) for a in (0, 1)]
    none = np.array([], int)
    before = ideal.learner(shown.at(slice(0)), none, asked, tasks)
    first = (0.2 * 0.8 + 0.4 * 0.3) / 0.6
    np.testing.assert_allclose(before, [[first, 1 - first]])
    after = ideal.learner(shown, np.array([0]), asked, tasks)
    weights = np.array([0.2 * 0.2 * 0.9, 0.4 * 0.4 * 0.5])
    first = weights @ [0.8, 0.3] / weights.sum()
    np.testing.assert_allclose(after, [[first, 1 - first]])


def test_ties_count_as_chance():
    odds = np.array([[0.5, 0.5 + 1e-15], [0.2, 0.8]])
    np.testing.assert_allclose(ideal.accuracy(odds, np.array([0, 0])), [0.5, 0.0])


def test_candidate_tasks_are_those_of_training():
    shared = ideal.tasks_of(LANGUAGE, 0, meant=True)
    assert [task[:2] for task in shared] == [(0, (0, 1)), (1, (0, 1))]
    (topic,) = ideal.tasks_of(LANGUAGE, 2, meant=True)
    assert topic == (2, (0, 1, 2, 3), LANGUAGE.attribute_odds[2])
    assert len(ideal.tasks_of(LANGUAGE, 1, meant=False)) == 4
    assert len(ideal.tasks_of(LANGUAGE, 2, meant=False)) == 24


def test_the_command_line_writes_what_is_reported_of_its_model(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    place, asked = sys.modules["experiments.small_lm.main"], []

    def train(config, run):
        asked.append(config)
        params = start(config, jax.random.key(0))
        state = SimpleNamespace(params=params)
        return SimpleNamespace(state=state, records=[{"loss": 2.0}], timing=Timing())

    rising = np.array([[0.5, 0.7, 0.95], [0.5, 0.6, 0.9], [0.5, 0.8, 0.95]])
    known = Curves(np.full((3, 3), 0.9), np.full((3, 3), 0.9), np.full(3, 0.95))
    told = Curves(rising, rising, np.full(3, 0.96))
    found = {asked.name: known if asked.meant else told for asked in QUESTIONS}
    monkeypatch.setattr(place, "train", train)
    monkeypatch.setattr(place, "curves", lambda config, params: found)
    result = main([*SMALL.split(), "--output", str(tmp_path)])
    (config,) = asked
    assert (config.width, config.shots, config.lengths) == (8, (0, 1, 3), (12, 20, 32))
    (folder,) = (tmp_path / "small_lm").iterdir()
    text = (folder / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == result
    assert (folder / "in_context_curves.png").stat().st_size > 10_000
    assert result["passed"]
    curve = result["curves"]["nonce_topic"]["model"]
    np.testing.assert_allclose(curve["mean"], [0.5, 0.7, 2.8 / 3])
    error = np.std([0.7, 0.6, 0.8], ddof=1) / 3**0.5
    assert curve["standard_error"][1] == pytest.approx(error)
    loaded = load_checkpoint(folder / "checkpoint")
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(loaded.params))
    assert size == result["parameters"]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    pytest.importorskip("tokenizers")
    output = tmp_path_factory.mktemp("runs")
    result = main([*SMALL.split(), "--output", str(output)])
    (folder,) = (output / "small_lm").iterdir()
    return folder, result


@pytest.mark.slow
def test_a_small_run_writes_everything_it_promises(small_run):
    folder, result = small_run
    text = (folder / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == result
    assert (folder / "in_context_curves.png").stat().st_size > 10_000
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    assert set(result["curves"]) == {question.name for question in QUESTIONS}
    curve = result["curves"]["topic"]["model"]
    assert len(curve["mean"]) == len(curve["standard_error"]) == 3
    loaded = load_checkpoint(folder / "checkpoint")
    assert loaded.logits(np.array([[v.START, v.COLON]])).shape[-1] == len(v.VOCABULARY)


@pytest.mark.slow
def test_a_finished_run_is_read_back(small_run):
    folder, result = small_run
    again = main(["--resume", str(folder)])
    assert again["curves"] == result["curves"]


def test_shipped_tasks_are_made_by_the_recipe(tmp_path):
    tasks.write(PRESETS["cpu"].language, tmp_path)
    files = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*.jsonl"))
    assert len(files) == 3 * len(tasks.SHIPPED)
    for file in files:
        assert (HERE / "tasks" / file).read_bytes() == (tmp_path / file).read_bytes()


@pytest.fixture(scope="module")
def shipped():
    pytest.importorskip("tokenizers")
    return load_checkpoint(HERE / "checkpoint")


def test_weights_are_rounded_to_sixteen_bits():
    found = checkpoint.rounded({"W": jax.numpy.array([1 + 2.0**-9, 0.1], "float32")})[
        "W"
    ]
    assert found.dtype == "float32"
    bits = np.asarray(found).view(np.uint32)
    assert (bits % 2**16 == 0).all()
    np.testing.assert_allclose(found, [1, 0.1], rtol=2.0**-8)


def test_the_shipped_checkpoint_fits_the_recipe(shipped):
    assert shipped.config.items() >= PRESETS["cpu"].hugging_face().items()
    assert shipped.tokenizer.vocab_size == len(v.VOCABULARY)
    size = sum(path.stat().st_size for path in (HERE / "checkpoint").iterdir())
    assert size < 2e6


@pytest.mark.slow
def test_the_shipped_checkpoint_learns_in_context(shipped):
    config = dataclasses.replace(
        PRESETS["cpu"], shots=(0, 8), demonstration_seeds=12, queries=16
    )
    found = curves(config, shipped.params)
    for asked in QUESTIONS:
        first, last = found[asked.name].model.T
        # Label words are drawn anew, so that without shots nothing beats chance.
        chance = 1 / v.NUM_CLASSES[asked.attribute]
        tested = first if asked.meant else last
        # Student's t of 11 degrees of freedom: 99.9 %, one-sided
        least = tested.mean() - 4.02 * tested.std(ddof=1) / len(tested) ** 0.5
        assert least > chance + 0.3, asked.name


@pytest.mark.slow
@pytest.mark.parametrize("name", tasks.SHIPPED)
def test_the_bridge_evaluates_the_shipped_tasks(shipped, name):
    task = load_task(tasks.declaration(name), tasks.FOLDER / name)
    assert len(task.demonstrations) == tasks.DEMONSTRATIONS
    encode, longest = shipped.tokenizer.encode, shipped.context_length
    assert not task.lint(encode, context_length=longest)
    none, many = (evaluate(shipped, task, shots=k) for k in (0, 16))
    assert none.num_examples == many.num_examples == tasks.ROWS["validation"]
    assert many.accuracy > 0.85
    if name == "nonce":
        # Chance, which is 128 of 256, is 8 standard deviations of 1 / 32 below 0.75.
        assert none.accuracy < 0.75


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Language(noise=1.0), r"noise: expected a value in \[0, 1\), got 1.0"),
        (lambda: Language(fewest_words=0), "fewest_words: expected at least 1, got 0"),
        (
            lambda: SentenceCurriculum(words_from=0.5),
            "words_from: expected a share below",
        ),
        (lambda: Config(shots=()), "shots: expected at least one value"),
        (lambda: Config(lengths=(5, 53, 101)), "lengths: expected at least 7"),
        (lambda: Config(lengths=(53,)), "lengths: expected 3 and as many"),
    ],
)
def test_impossible_sizes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_composed_prompts_may_hold_no_demonstrations():
    none = np.zeros((2, 0), int)
    empty = compose(np.zeros((2, 0, 7), int), none, none, 5)
    assert np.asarray(empty.mask).sum() == 2
