"""The seven tasks of Yao et al., by the paper and by the authors' scripts.

Table 1 of the paper prints each prompt on one line. The profile ``"paper"`` takes it
literally, with nothing after the last colon, and ends a demonstration with a line
feed. COPA's three fields stand in the table without anything between them; line feeds
are put there, as the scripts do. Where the paper is silent, both profiles do what the
scripts do: shuffle seeds, classes in turn, equal classes in validation, label words.
"""

from dataclasses import replace

from icltheory.bridge.tasks.declare import File, Split, TaskRecipe, TaskSpec
from icltheory.bridge.tasks.task import PromptTemplate


def _text_recipes(
    words: tuple[str, ...], word: str, choices: str, split: Split
) -> dict[str, TaskRecipe]:
    """Recipes of the tasks with one text."""
    paper = PromptTemplate(
        demonstration=f"text: {{text!t}} {word}: {{label}}\n",
        query=f"text: {{text!t}} {word}:",
        words=words,
    )
    code = PromptTemplate(
        demonstration="text: {text}\n sentiment : {label} \n",
        query="text: {text!t}\n sentiment :",
        words=words,
        zero_shot=(
            "Consider the following text: {text!t}. "
            f"Is this text sentiment {choices} The sentiment is"
        ),
    )
    return {
        "paper": TaskRecipe(paper, split),
        "authors_code": TaskRecipe(code, split),
    }


def _sst2() -> TaskSpec:
    split = Split(
        seed=49, per_class=5, skip=4000, order=(1, 0), validation=4000, test="rest"
    )
    return TaskSpec(
        name="sst2",
        fields={"text": "{sentence}"},
        labels=(("label", ("0", "1")), ("label", ("negative", "positive"))),
        recipes=_text_recipes(("neg", "pos"), "sentiment", "pos or neg.", split),
        hub=("stanfordnlp/sst2",),
    )


def _agnews() -> TaskSpec:
    words = ("world", "sports", "business", "science")
    choices = " or ".join(words) + "?"
    split = Split(seed=42, per_class=2, skip=2000, validation=2000)
    return TaskSpec(
        name="agnews",
        fields={"text": ("{text}", "{title} {description}", "{description}")},
        labels=(
            ("class_index", ("1", "2", "3", "4")),
            ("label", ("0", "1", "2", "3")),
            ("label", ("World", "Sports", "Business", "Sci/Tech")),
        ),
        recipes=_text_recipes(words, "classification", choices, split),
        hub=("fancyzhx/ag_news",),
        headerless=(("class_index", "title", "description"), ("text", "label")),
    )


def _emoc() -> TaskSpec:
    split = Split(seed=72, per_class=5, skip=2500, order=(1, 0), validation=2500)
    same = _text_recipes(("neg", "pos"), "sentiment", "pos or neg.", split)
    emotions = ("others", "happy", "sad", "angry")
    return TaskSpec(
        name="emoc",
        # The hub stores the three turns as one text, cleaned and in lower case.
        fields={"text": ("{text}", "{turn1} {turn2} {turn3}")},
        labels=(("label", emotions), ("label", ("0", "1", "2", "3"))),
        recipes={
            "paper": replace(same["paper"], merge=(0, 1, 0, 0)),
            "authors_code": replace(same["authors_code"], merge=(1, 0, 0, 0)),
        },
        hub=("SemEvalWorkshop/emo",),
    )


def _mrpc() -> TaskSpec:
    words = ("false", "true")
    sentences = "sentence1: {sentence1!t} sentence2: {sentence2!t} label :"
    paper = PromptTemplate(sentences + " {label}\n", sentences, words)
    pair = "sentence1: {sentence1} \n sentence2: {sentence2!e}"
    code = PromptTemplate(
        demonstration=(
            "sentence1: {sentence1} \n sentence2: {sentence2}\n label : {label} \n"
        ),
        query=f"{pair}\n label :",
        words=words,
        zero_shot=(
            f"Consider the following text: {pair}. "
            "Are these two sentences equal or unequal. The label is"
        ),
    )
    split = Split(seed=42, per_class=5, skip=200, order=(1, 0))
    return TaskSpec(
        name="mrpc",
        fields={
            "sentence1": ("{sentence1}", "{#1 String}"),
            "sentence2": ("{sentence2}", "{#2 String}"),
        },
        labels=(
            ("Quality", ("0", "1")),
            ("label", ("0", "1")),
            ("label", ("not_equivalent", "equivalent")),
        ),
        recipes={
            "paper": TaskRecipe(paper, split),
            "authors_code": TaskRecipe(code, split, denominator="n-1"),
        },
        hub=("nyu-mll/glue", "mrpc"),
        # GLUE's own test.tsv has no labels.
        files=(File("test", "msr_paraphrase_test.txt"),),
    )


def _rte() -> TaskSpec:
    question = "{premise} Does this mean that {hypothesis} is true? select Yes or No?"
    paper = PromptTemplate(question + " {label}\n", question, ("Yes", "No"))
    code = replace(paper, query=question + " ")
    split = Split(seed=66, per_class=5, skip=200, validation="rest", test="validation")
    fewer = replace(split, keep=5, validation=200)
    return TaskSpec(
        name="rte",
        fields={"premise": "{premise}", "hypothesis": "{hypothesis}"},
        labels=(("label", ("entailment", "not_entailment")), ("label", ("0", "1"))),
        recipes={
            "paper": TaskRecipe(paper, split),
            "authors_code": TaskRecipe(code, fewer, denominator="n-1"),
        },
        hub=("aps/super_glue", "rte"),
    )


def _cb() -> TaskSpec:
    question = "Suppose {premise} Can we infer that {hypothesis}? Yes, No, or Maybe?"
    answers = ("Yes", "No", "Maybe")
    paper = PromptTemplate(question + " {label}\n", question, answers, scored=answers)
    quoted = "Suppose {premise} Can we infer that '{hypothesis}'? "
    code = PromptTemplate(
        demonstration=quoted + "Yes, No, or Maybe? {label}\n",
        query=quoted + "Yes, or No, or Mi? ",
        words=("Yes", "No", "Mi"),
        scored=answers,
    )
    split = Split(
        seed=66, per_class=5, order=(0, 2, 1), validation="rest", test="validation"
    )
    fewer = replace(split, keep=5)
    relations = ("entailment", "contradiction", "neutral")
    return TaskSpec(
        name="cb",
        fields={"premise": "{premise}", "hypothesis": "{hypothesis}"},
        labels=(("label", relations), ("label", ("0", "1", "2"))),
        recipes={
            "paper": TaskRecipe(paper, split),
            "authors_code": TaskRecipe(code, fewer, denominator="n-1"),
        },
        hub=("aps/super_glue", "cb"),
    )


def _copa() -> TaskSpec:
    paper = PromptTemplate(
        demonstration="{premise}\n{question}\n{label!e}\n",
        query="{premise}\n{question}\n",
        options=("{choice1}", "{choice2}"),
    )
    # The scripts score the whole text, with the line feed after the answer.
    code = replace(paper, options=("{choice1}\n", "{choice2}\n"))
    split = Split(66, 5, skip=100, order=(1, 0), validation=100, test="validation")
    fewer = replace(split, keep=5)
    return TaskSpec(
        name="copa",
        kind="choice",
        fields={
            "premise": ("{premise}", "{p}"),
            "question": ("{question}", "{asks-for}"),
            "choice1": ("{choice1}", "{a1}"),
            "choice2": ("{choice2}", "{a2}"),
        },
        labels=(("label", ("0", "1")), ("most-plausible-alternative", ("1", "2"))),
        recipes={
            "paper": TaskRecipe(paper, split, scoring="average_log_likelihood"),
            "authors_code": TaskRecipe(code, fewer, scoring="mean_logit"),
        },
        hub=("aps/super_glue", "copa"),
        files=(
            File("train", "train.*"),
            File("train", "copa-dev.xml", 0, 400),
            File("validation", "val.*"),
            File("validation", "copa-dev.xml", 400, 500),
        ),
    )


TASKS: dict[str, TaskSpec] = {
    spec.name: spec
    for spec in (_sst2(), _agnews(), _emoc(), _mrpc(), _rte(), _cb(), _copa())
}
