"""Small files in the formats of the seven tasks, and where the real ones may lie."""

import json
from pathlib import Path

import numpy as np
import pytest

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "tasks"


def shared(name):
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip("the data sets are not beside the repository")
    return folder


def mixed(counts, seed=0):
    """Class numbers in random order, so many of each."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return [int(label) for label in np.random.default_rng(seed).permutation(labels)]


def lines(path, rows, mark=""):
    path.write_text(mark + "\n".join(rows) + "\n", encoding="utf-8", newline="\n")


def jsonl(path, rows):
    lines(path, [json.dumps(row) for row in rows])


def sst2(folder):
    labels = mixed((4012, 4031))
    rows = [f'a "fine film {i} \t{label}' for i, label in enumerate(labels)]
    lines(folder / "train.tsv", ["sentence\tlabel", *rows])
    return {"train": labels}


def agnews(folder):
    labels, test = mixed((2003, 2002, 2004, 2002)), mixed((3, 4, 5, 6))
    rows = [f'"{c + 1}","Title {i}","He said ""go"" {i}"' for i, c in enumerate(labels)]
    lines(folder / "train.csv", rows)
    lines(folder / "test.csv", [f'"{c + 1}","T","D {i}"' for i, c in enumerate(test)])
    return {"train": labels, "test": test}


def emoc(folder):
    words = ("others", "happy", "sad", "angry")
    labels, test = mixed((2700, 2600, 1300, 1400)), mixed((20, 5, 4, 3))
    for name, numbers in (("train", labels), ("test", test)):
        rows = [f'{i}\tWhy" {i}\tso\t😂 {i}\t{words[c]}' for i, c in enumerate(numbers)]
        lines(folder / f"{name}.txt", ["id\tturn1\tturn2\tturn3\tlabel", *rows])
    return {"train": labels, "test": test}


def mrpc(folder):
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    sizes = {"train": (210, 230), "validation": (4, 9), "test": (5, 12)}
    files = {
        "train": "train.tsv",
        "validation": "dev.tsv",
        "test": "msr_paraphrase_test.txt",
    }
    labels = {name: mixed(counts) for name, counts in sizes.items()}
    for name, file in files.items():
        rows = [
            f'{c}\t{i}\t{i}\t" One {i} .\tTwo {i} .' for i, c in enumerate(labels[name])
        ]
        lines(folder / file, [header, *rows], mark="\ufeff")
    lines(folder / "dev_ids.tsv", ["1\t2"])
    # GLUE's test file has no labels and must not be taken.
    lines(folder / "test.tsv", ["index\t#1 ID\t#2 ID\t#1 String\t#2 String"])
    return labels


def pairs(folder, words, sizes):
    labels = {name: mixed(counts) for name, counts in sizes.items()}
    for name, file in (("train", "train.jsonl"), ("validation", "val.jsonl")):
        rows = [
            {
                "premise": f"P {name} {i}.",
                "hypothesis": "H " * (i % 4) + str(i),
                "label": words[c],
                "idx": i,
            }
            for i, c in enumerate(labels[name])
        ]
        jsonl(folder / file, rows)
    jsonl(folder / "test.jsonl", [{"premise": "P", "hypothesis": "H", "idx": 0}])
    return labels


def rte(folder):
    words = ("entailment", "not_entailment")
    return pairs(folder, words, {"train": (215, 210), "validation": (8, 7)})


def cb(folder):
    words = ("entailment", "contradiction", "neutral")
    return pairs(folder, words, {"train": (23, 24, 9), "validation": (4, 5, 2)})


def copa_rows(labels, first=0):
    return [
        {
            "premise": f"P {i}.",
            "choice1": f"A {i}.",
            "choice2": f"B & {i}.",
            "question": ("cause", "effect")[i % 2],
            "label": label,
        }
        for i, label in enumerate(labels, start=first)
    ]


def copa(folder):
    labels = {"train": mixed((108, 107)), "validation": mixed((6, 5))}
    jsonl(folder / "train.jsonl", copa_rows(labels["train"]))
    jsonl(folder / "val.jsonl", copa_rows(labels["validation"], 400))
    return labels


WRITERS = {
    writer.__name__: writer for writer in (sst2, agnews, emoc, mrpc, rte, cb, copa)
}
