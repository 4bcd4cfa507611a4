"""Trains a small language model that learns in context, for offline use of the bridge.

A LLaMA of 4 layers and width 64 learns documents of demonstrations ``w w w : LABEL`` of
:mod:`experiments.shared.language`, in a quarter with meaningful label words, else with
nonce words drawn for each document. The run folder holds the model in bfloat16 as a
Hugging Face checkpoint, and four tasks for ``load_task``; those of the preset cpu are
in ``small_lm/``. Sentences and nonce pairs of the evaluation are held out.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import frame
from experiments.frame import Check, Report, check_at_least, expect
from experiments.shared import language as v
from experiments.shared.training import fit, mean_metrics
from icltheory import training
from icltheory.bridge import Decoder, LanguageModel
from icltheory.bridge.export import save_checkpoint
from icltheory.bridge.families import read_architecture
from icltheory.bridge.tasks import PromptTemplate, Split, TaskRecipe, TaskSpec
from icltheory.plotting import COLOURS
from icltheory.statistics import Estimate
from icltheory.training import OptimizerConfig, TrainState, stream_key

# Kinds of tasks: the attribute, and whether the label words have a meaning.
QUESTIONS = {
    "sentiment": (0, True),
    "topic": (2, True),
    "nonce_sentiment": (0, False),
    "nonce_season": (1, False),
    "nonce_topic": (2, False),
}
# Each shipped task with its kind.
SHIPPED = {
    "sentiment": "sentiment",
    "topic": "topic",
    "nonce": "nonce_season",
    "nonce_topic": "nonce_topic",
}
ROWS = {"train": 64, "validation": 256, "test": 512}
DEMONSTRATIONS = 16
FOLDER = Path(__file__).with_suffix("") / "tasks"
# A curve rises if the gain from demonstrations has an interval above this.
RISE = 0.1


@dataclasses.dataclass(frozen=True)
class SentenceCurriculum:
    """Changes of the training data, by the share of the training completed."""

    words_from: float = 0.12  # until then, the first words of the lists only
    words_to: float = 0.3  # from then on, all words alike
    sentences_from: float = 0.27  # until then, sentences of one or two words
    # from then on, half of the documents have sentences of the whole language; the
    # others are easier by any amount
    sentences_to: float = 0.6
    # from where on each length of documents after the first is used
    longer_from: tuple[float, ...] = (0.3, 0.6)

    def __post_init__(self):
        for what in ("words", "sentences"):
            first, last = (getattr(self, f"{what}_{end}") for end in ("from", "to"))
            fits, got = 0 <= first < last <= 1, f"{first} and {last}"
            expect(fits, f"{what}_from", f"a share below {what}_to", got)


@dataclasses.dataclass(frozen=True)
class Config:
    """The whole recipe; it alone decides every number, for one platform."""

    language: v.Language = v.Language()  # what is spoken
    width: int = 64  # width of the residual stream
    num_layers: int = 4  # blocks
    num_heads: int = 4  # query heads
    num_kv_heads: int = 2  # heads of keys and values
    mlp_width: int = 160  # width inside the MLP
    rotary_base: float = 100.0  # base of the rotary frequencies
    embed_std: float = 0.5  # standard deviation of the token table at the start
    # update rule and its schedule
    optimizer: OptimizerConfig = OptimizerConfig(
        "adam", 3e-3, schedule="cosine", warmup_steps=100, clip_norm=1.0, b2=0.98
    )
    curriculum: SentenceCurriculum = SentenceCurriculum()  # what changes in training
    steps: int = 4000  # training steps
    lengths: tuple[int, ...] = (29, 53, 101)  # tokens of a document, one after another
    batch_sizes: tuple[int, ...] = (64, 64, 32)  # documents per step at each length
    text_weight: float = 0.1  # weight in the loss of all tokens that are no labels
    seed: int = 0  # seed of the start and of the data
    chunk_steps: int = 50  # steps per dispatch, and per line of metrics.jsonl
    checkpoint_every: int = 500  # steps between checkpoints
    # numbers of demonstrations that are tried
    shots: tuple[int, ...] = (0, 1, 2, 4, 8, 16)
    demonstration_seeds: int = 32  # draws of demonstrations and label words
    queries: int = 32  # questions asked after each draw
    level: float = 0.95  # confidence of the intervals

    def needs_all_steps(self) -> str:
        return "the stages of the curriculum are shares of all steps"

    def __post_init__(self):
        sizes = ("width", "num_layers", "num_heads", "num_kv_heads", "mlp_width")
        check_at_least(self, 1, *sizes, "steps")
        check_at_least(self, 2, "demonstration_seeds", "queries")
        check_at_least(self, self.language.demo_length() + 1, "lengths")
        lengths = self.lengths
        stages = len(self.curriculum.longer_from) + 1
        fits = stages == len(lengths) == len(self.batch_sizes)
        got = f"{lengths} and {self.batch_sizes}"
        expect(fits, "lengths", f"{stages} and as many batch_sizes", got)
        check_at_least(self, 0, "shots")

    def hugging_face(self) -> dict[str, Any]:
        longest = 1 + (max(self.shots) + 1) * self.language.demo_length()
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(v.VOCABULARY),
            "hidden_size": self.width,
            "intermediate_size": self.mlp_width,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.width // self.num_heads,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": self.rotary_base,
            "max_position_embeddings": max(256, longest),
            "tie_word_embeddings": True,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": v.START,
            "eos_token_id": v.END,
            "dtype": "float32",
        }


PRESETS = {
    "cpu": Config(),
    "gpu": Config(
        width=96,
        num_layers=6,
        mlp_width=256,
        steps=20_000,
        batch_sizes=(256, 256, 256),
        demonstration_seeds=128,
        queries=64,
        checkpoint_every=2000,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "4 to 5 min, 2 cores"}


# --- the model and its training; documents are functions of the seed and the step


def decoder_of(config: Config) -> Decoder:
    """Returns the decoder described by the checkpoint's ``config.json``."""
    return Decoder(read_architecture(config.hugging_face()))


def start(config: Config, key: jax.Array) -> Any:
    """Draws initial parameters that preserve the scale of activations."""
    params = decoder_of(config).init(key)
    leaves, tree = jax.tree_util.tree_flatten_with_path(params)
    drawn = []
    for k, (path, leaf) in zip(jax.random.split(key, len(leaves)), leaves, strict=True):
        names = [getattr(part, "key", None) for part in path]
        if leaf.ndim == 1:
            last = names[0] == "final_norm"
            size = 1 / (config.embed_std * config.width**0.5) if last else 1.0
            drawn.append(jnp.full_like(leaf, size))
            continue
        std = config.embed_std if "tokens" in names else leaf.shape[1] ** -0.5
        if "W_O" in names or "W_out" in names:
            std *= (2 * config.num_layers) ** -0.5
        drawn.append(std * jax.random.normal(k, leaf.shape, leaf.dtype))
    return jax.tree.unflatten(tree, drawn)


def initial_state(config: Config) -> TrainState:
    def draw(seed):
        params = start(config, stream_key(seed, "init"))
        step = jnp.zeros((), jnp.int32)
        return TrainState(step, seed, params, _optimizer(config).init(params))

    return jax.jit(draw)(jnp.asarray(config.seed, jnp.int32))


def _optimizer(config):
    return training.make_optimizer(config.optimizer, config.steps)


def make_step(config: Config) -> training.Step:
    optimizer, c = _optimizer(config), config.curriculum
    loss = jax.value_and_grad(make_loss(config), has_aux=True)

    def at_length(length, batch):
        def value(params, key, stage):
            spread = (stage - c.words_from) / (c.words_to - c.words_from)
            whole = (stage - c.sentences_from) / (c.sentences_to - c.sentences_from)
            spread, whole = (jnp.clip(share, 0, 1) for share in (spread, whole))
            # This many of the shortest demonstrations fit; longer ones are truncated.
            sizes = batch, (length - 1) // 4, length
            drawn = v.documents(key, config.language, *sizes, spread, whole)
            return loss(params, drawn)

        return value

    lengths = [*map(at_length, config.lengths, config.batch_sizes)]

    def step(state):
        key = jax.random.fold_in(stream_key(state.seed, "data"), state.step)
        stage = state.step / config.steps
        place = (stage >= jnp.asarray(c.longer_from)).sum()
        (value, parts), grads = jax.lax.switch(place, lengths, state.params, key, stage)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        new = TrainState(state.step + 1, state.seed, params, opt_state)
        return new, {"loss": value, **parts}

    return step


def make_loss(config: Config) -> Any:
    """Returns the loss: cross-entropy of labels, and a small part of other tokens."""
    decoder = decoder_of(config)

    def loss(params, drawn):
        scores = v.logits(decoder, params, drawn.ids[:, :-1], drawn.mask[:, :-1])
        each = optax.softmax_cross_entropy_with_integer_labels(scores, drawn.ids[:, 1:])
        is_label = drawn.is_label[:, 1:]
        labels = jnp.mean(each, where=is_label)
        text = jnp.mean(each, where=drawn.mask[:, 1:] & ~is_label)
        # Nonce labels in the second half, which can be inferred from demonstrations.
        late = jnp.arange(each.shape[1]) >= each.shape[1] // 2
        nonce = is_label & (drawn.ids[:, 1:] >= v.FIRST_NONCE) & late[None]
        told = jnp.sum(each, where=nonce) / jnp.maximum(nonce.sum(), 1)
        parts = {"label_loss": labels, "text_loss": text, "nonce_loss": told}
        return labels + config.text_weight * text, parts

    return loss


def train(config: Config, run: Any) -> Any:
    """Trains the model, or resumes an interrupted run."""

    def record(done, chunk):
        means = mean_metrics(chunk.metrics)
        return {"step": done, **{name: value[0] for name, value in means.items()}}

    given = make_step(config), initial_state(config), run, config, record
    return fit(*given, label="training the language model")


# --- what is kept: a checkpoint and tasks


def rounded(params: Any) -> Any:
    """Rounds parameters to bfloat16, which halves the archive; returns float32."""
    return jax.tree.map(lambda leaf: leaf.astype("bfloat16").astype("float32"), params)


def save(config: Config, params: Any, folder: Path) -> Path:
    """Writes the four files of the checkpoint and replaces existing ones."""
    described = config.hugging_face()
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
    model = LanguageModel(decoder_of(config), params, config=described)
    save_checkpoint(model, folder, overwrite=True)
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "add_bos_token": True,
        "model_max_length": described["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer.json").write_text(_tokenizer_json(special.values()))
    text = json.dumps(settings, indent=1) + "\n"
    (folder / "tokenizer_config.json").write_text(text)
    return folder


def _tokenizer_json(special) -> str:
    """A word-level tokenizer, in which colons and line ends are words too."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    made = tokenizers.Tokenizer(models.WordLevel(v.ID, unk_token="<unk>"))
    marks = tokenizers.Regex("[\n:]")
    parts = [(marks, "isolated"), (" ", "removed")]
    split = [pre_tokenizers.Split(*part) for part in parts]
    made.pre_tokenizer = pre_tokenizers.Sequence(split)  # pyrefly: ignore
    ids = {"special_tokens": [("<s>", v.ID["<s>"])]}
    begin = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", **ids)
    made.post_processor = begin  # pyrefly: ignore
    flags = {"special": True, "normalized": False}
    made.add_special_tokens([tokenizers.AddedToken(word, **flags) for word in special])
    return made.to_str(pretty=True) + "\n"


def declaration(name: str) -> TaskSpec:
    """Returns the declaration of a task, which ``load_task`` reads with its folder."""
    place, meant = QUESTIONS[SHIPPED[name]]
    nonce = tuple(v.NONCE[: v.NUM_CLASSES[place]])
    words = v.MEANT[v.ATTRIBUTES[place]] if meant else nonce
    return TaskSpec(
        name=name,
        fields={"text": "{text}"},
        labels=(("label", tuple(str(label) for label in range(len(words)))),),
        recipes=TaskRecipe(
            PromptTemplate("{text} : {label}\n", "{text} :", words),
            Split(per_class=DEMONSTRATIONS // len(words)),
        ),
    )


def write_tasks(language: v.Language, folder: Path) -> None:
    """Writes the rows of every task into a folder of its name; classes alternate."""
    draw = jax.jit(v.sentences, static_argnames=("language", "held_out"))
    for number, (name, kind) in enumerate(SHIPPED.items()):
        # This seed differs from the models' seeds, so no run shares these draws.
        key = jax.random.fold_in(jax.random.key(20_000), number)
        place, _ = QUESTIONS[kind]
        subject = np.full(8 * sum(ROWS.values()), place)
        said = draw(key, language, subject, held_out=True)
        classes = np.asarray(said.classes[:, place]).tolist()
        labelled = dict(zip(_texts(said), classes, strict=True))
        count = v.NUM_CLASSES[place]
        fresh = [iter([t for t, c in labelled.items() if c == k]) for k in range(count)]
        (folder / name).mkdir(parents=True, exist_ok=True)
        for split, num in ROWS.items():
            labels = [i % count for i in range(num)]
            rows = [{"text": next(fresh[label]), "label": label} for label in labels]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / name / f"{split}.jsonl").write_text(text)


def _texts(said):
    rows = zip(np.asarray(said.words).tolist(), said.length.tolist(), strict=True)
    return [" ".join(v.VOCABULARY[w] for w in row[:count]) for row, count in rows]


# --- accuracy against the number of demonstrations


def curves(config: Config, params: Any) -> dict[str, dict[str, np.ndarray]]:
    """Accuracies of each draw (demonstrations with label words), by kind of task.

    ``informed`` is of an ideal learner that knows which word stands for which class.
    """
    keys = jax.random.split(stream_key(config.seed, "evaluation"), len(QUESTIONS))
    run = jax.jit(v.answer_logits, static_argnums=(0, 1))
    return {
        name: _curve(config, params, *QUESTIONS[name], own, run)
        for name, own in zip(QUESTIONS, keys, strict=True)
    }


def _curve(config, params, place, meant, key, run):
    language, draws, asked = config.language, config.demonstration_seeds, config.queries
    keys, classes = jax.random.split(key, 3), v.NUM_CLASSES[place]
    sizes = (draws, max(config.shots)), (draws, asked)
    shown, asks = (
        jax.tree.map(np.asarray, v.sentences(k, language, np.full(size, place), True))
        for k, size in zip(keys, sizes, strict=False)
    )
    stated, truth = shown.classes[..., place], asks.classes[..., place]
    if language.label_noise:
        noise_key = jax.random.fold_in(key, len(keys))
        known = np.tile(np.arange(v.MOST_CLASSES), (draws, 1))
        known = stated, np.full(draws, classes), known
        stated = np.asarray(v.mislabelled(noise_key, language.label_noise, *known))
    labels = np.asarray(v.nonce_labels(keys[2], draws, held_out=True))
    labels = np.tile(v.meant_labels()[place], (draws, 1)) if meant else labels
    labels, decoder, accuracies = labels[:, :classes], decoder_of(config), []
    for k in config.shots:
        length, right = 1 + (k + 1) * language.demo_length(), []
        for draw in range(draws):
            pairs = zip(
                (shown.words, shown.length, stated),
                (asks.words, asks.length, truth),
                strict=True,
            )
            words, counts, told = (
                np.concatenate(
                    [np.repeat(before[None, draw, :k], asked, 0), own[draw][:, None]], 1
                )
                for before, own in pairs
            )
            said = labels[draw][told]
            every = np.asarray(run(decoder, length, params, words, counts, said))
            right.append(every[:, labels[draw]].argmax(axis=1) == truth[draw])
        accuracies.append(np.mean(right, axis=1))
    ideal = informed(language, asks, place)
    return {"model": np.stack(accuracies, 1), "informed": ideal}


def informed(language: v.Language, asks: v.Sentences, place: int) -> np.ndarray:
    """Accuracy of each draw of Bayes' rule that knows the task: most words decide.

    Words are of their class with probability 1 - noise, of each other noise / (C - 1).
    """
    classes, noise = v.NUM_CLASSES[place], language.noise
    counted = np.arange(asks.words.shape[-1]) < asks.length[..., None]
    lists = np.where(counted, (asks.words - v.FIRST_WORD) // v.LIST_LENGTH, -1)
    own = v.FIRST_LIST[place] + np.arange(classes)
    votes = (lists[..., None] == own).sum(axis=-2)
    odds = votes * (1 - noise - noise / (classes - 1))
    best = odds == odds.max(axis=-1, keepdims=True)
    truth = np.asarray(asks.classes[..., place, None])
    right = np.take_along_axis(best, truth, -1)[..., 0]
    return (right / best.sum(axis=-1)).mean(axis=1)


# --- what is reported


def summary(values: np.ndarray, level: float) -> dict[str, list[float]]:
    """Mean over the draws, its standard error and Student's interval."""
    found = Estimate.of(np.asarray(values, np.float64).reshape(len(values), -1))
    low, high = found.interval(level)
    parts = {"mean": found.mean, "standard_error": found.standard_error}
    return {k: x.tolist() for k, x in (parts | {"low": low, "high": high}).items()}


def checks(config: Config, found: dict[str, dict[str, np.ndarray]]) -> list[Check]:
    """Checks that nonce labels are learned from shots, and that none is above Bayes."""
    learned, bounded, level = [], [], config.level
    for name, (place, meant) in QUESTIONS.items():
        model = found[name]["model"]
        gain = model[:, -1] - model[:, 0]
        words = f"gain of {config.shots[-1]} shots over none"
        if meant:
            gain = model[:, 0] - 1 / v.NUM_CLASSES[place]
            words = "excess over chance without shots"
        least, words = summary(gain, level)["low"][0], f"{name}: least {words}"
        learned.append(Check(f"{RISE} against {words}", RISE, least, "<="))
        excess = summary(model[:, -1] - found[name]["informed"], level)["low"][0]
        words = f"{name}: least excess over the ideal learner that knows the task"
        bounded.append(Check(words, excess, 0.0, "<="))
    return learned + bounded


def accuracy_table(config: Config, summaries: dict[str, Any]) -> Any:
    """Accuracies by task and number of shots, and those of the ideal learner."""
    rows = []
    for name, parts in summaries.items():
        cells = [
            f"{mean:.3f} ({error:.3f})"
            for part in ("model", "informed")
            for mean, error in zip(
                parts[part]["mean"], parts[part]["standard_error"], strict=True
            )
        ]
        rows.append({"task": name, **{f"c{i}": cell for i, cell in enumerate(cells)}})
    heads = [*(f"k = {k}" for k in config.shots), "ideal, knows the task"]
    return frame.table(
        rows,
        {"task": "{task}", **{head: f"{{c{i}}}" for i, head in enumerate(heads)}},
        f"accuracy (standard error) over {config.demonstration_seeds} draws of "
        f"demonstrations and labels, {config.queries} questions each",
    )


def draw_curves(config: Config, summaries: dict[str, Any]) -> Any:
    words = {True: "meaningful labels", False: "nonce labels"}
    titles = [f"{v.ATTRIBUTES[p]}, {words[meant]}" for p, meant in QUESTIONS.values()]
    title = (
        "In-context learning of the small language model, on held-out words\n"
        f"(bands: {100 * config.level:g} % intervals over "
        f"{config.demonstration_seeds} draws of demonstrations)"
    )
    look = {"color": COLOURS[0], "marker": "o"}
    grey, dotted = {"color": "grey", "linewidth": 0.9}, {"linestyle": ":"}
    with frame.figure(titles, 3, title, 2.3, sharey=True) as (shown, entries):
        k = np.asarray(config.shots, float)
        places = np.where(k <= 1, k, 1 + np.log2(np.maximum(k, 1)))
        for (name, (place, _)), axes in zip(QUESTIONS.items(), shown, strict=True):
            curve, ideal = summaries[name]["model"], summaries[name]["informed"]
            axes.plot(places, curve["mean"], markersize=4, **look)
            # The interval of an accuracy is limited to [0, 1].
            ends = (np.clip(curve[end], 0, 1) for end in ("low", "high"))
            axes.fill_between(places, *ends, color=COLOURS[0], alpha=0.2, linewidth=0)
            axes.axhline(ideal["mean"][0], **grey)
            axes.axhline(1 / v.NUM_CLASSES[place], **grey, **dotted)
            axes.set_xticks(places, [str(shots) for shots in config.shots])
            axes.set_xlabel("demonstrations (log scale)")
        for axes in shown[::3]:
            axes.set(ylabel="accuracy", ylim=(0, 1.05))
        entries["model"] = frame.key(**look)
        entries["ideal learner that knows the task"] = frame.key(**grey)
        entries["chance"] = frame.key(**grey, **dotted)
    return shown[0].figure


def report(config: Config, fitted: Any, found: dict[str, dict]) -> Report:
    summaries = {
        name: {part: summary(values, config.level) for part, values in own.items()}
        for name, own in found.items()
    }
    sizes = (np.size(x) for x in jax.tree.leaves(fitted.state.params))
    return Report(
        {
            "shots": list(config.shots),
            "curves": summaries,
            "parameters": int(sum(sizes)),
            "last_losses": fitted.records[-1],
            "training_seconds": fitted.timing.train_seconds,
        },
        checks=checks(config, found),
        tables=[accuracy_table(config, summaries)],
        figures={"in_context_curves.png": draw_curves(config, summaries)},
        interval_level=config.level,
        axes={"curves.*.*.*": ["number of demonstrations"]},
    )


@frame.experiment(PRESETS)
def main(config, run):
    with run.phase("training"):
        fitted = train(config, run)
    params = rounded(fitted.state.params)
    if run.writes:
        save(config, params, run.folder / "checkpoint")
        write_tasks(config.language, run.folder / "tasks")
    with run.phase("curves"):
        found = curves(config, params)
    return report(config, fitted, found)


frame.program(__name__, main)
