"""From a command line to the results, with the dear parts between left out.

The parts are tested, and each experiment is run as a whole, in its own file.
"""

import importlib
import json
import sys
from collections import Counter
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from experiments.frame import Report
from experiments.shared.training import Timing

TRAINED = SimpleNamespace(records=[], name="model", timing=Timing(), path=MagicMock())


def each_setting(config, trained, settings, *_):
    """What is measured of every setting; here the setting itself."""
    return settings


# What an experiment's main calls, and what that returns here.
PARTS = {
    "cot": {
        "train": TRAINED,
        "masses": ((), ()),
        "measure": each_setting,
        "theory": {},
    },
    "gradient_flow": {
        "measure_paths": (),
        "measure_descents": (),
        "measure_starts": {"counts": Counter()},
    },
    "implicit_noise": {"train": TRAINED, "measure_gpt2": (), "measure_stack": ()},
    "li_figures": {
        "search": {},
        "levels": (),
        "train_one_layer": {},
        "train_three_layers": (),
    },
    "ltb_gap": {
        "settings": [],
        **dict.fromkeys(("train", "theory"), None),
        **dict.fromkeys(("phases", "hills"), {}),
    },
    "pattern_icl": {"measure": ()},
    "pattern_layers": {"train_layers": (), "measure": ()},
    "pattern_pruning": {
        "train_ensemble": TRAINED,
        "prune": (),
        "compare": (),
        "train_gpt": (),
        "prune_gpt": (),
    },
    "mechanisms": {
        "train": TRAINED,
        **dict.fromkeys(("language", "features", "kernels", "circuit"), {}),
        "regression": {},
    },
    "position": {"train": TRAINED, "measure": (), "label_weights": {}},
    "prune_icl": {"train": TRAINED, "subject": (), "measure": ()},
    "softmax_attention": dict.fromkeys(("train", "theory", "transfer", "evaluate"), {}),
    "task_diversity": {
        "train": MagicMock(),
        **dict.fromkeys(("scorers", "measure", "theory"), {}),
    },
    "trajectories": {"train": TRAINED, "stacks": {}, "prompts": (), "measure": ()},
    "which_algorithm": {"measure": {}},
}
# An option, and where its value is found in the config.
OPTIONS = {
    "cot": ("seeds", "4 5", (4, 5)),
    "gradient_flow": ("num-starts", "9", 9),
    "implicit_noise": ("gpt2.steps", "200", 200),
    "mechanisms": ("gpt2.steps", "2000", 2000),
    "position": ("gpt2.steps", "2000", 2000),
    "li_figures": ("fresh-prompts", "300", 300),
    "ltb_gap": ("steps", "200", 200),
    "pattern_icl": ("prompts", "7", 7),
    "pattern_layers": ("layers.num-neurons", "8", 8),
    "pattern_pruning": ("ensemble.seeds", "4 5", (4, 5)),
    "prune_icl": ("test-prompts", "12", 12),
    "softmax_attention": ("steps", "200", 200),
    "task_diversity": ("recipe.steps", "200", 200),
    "trajectories": ("linear.steps", "200", 200),
    "which_algorithm": ("num-prompts", "100", 100),
}


def stand_in(found):
    """A function that returns what is given, or what a given function makes."""
    if callable(found):
        return MagicMock(side_effect=found)
    return MagicMock(return_value=found)


def value_of(config, option):
    for name in option.replace("-", "_").split("."):
        config = getattr(config, name)
    return config


@pytest.mark.parametrize("name", PARTS)
def test_what_is_asked_for_is_measured_reported_and_written(
    name, tmp_path, monkeypatch
):
    experiment = importlib.import_module(f"experiments.{name}")
    main = sys.modules.get(f"experiments.{name}.main", experiment)
    parts = {part: stand_in(found) for part, found in PARTS[name].items()}
    report = MagicMock(return_value=Report({}))
    for part, replaced in [*parts.items(), ("report", report)]:
        monkeypatch.setattr(main, part, replaced)
    option, words, expected = OPTIONS[name]
    preset = "cpu" if "cpu" in experiment.PRESETS else "tiny"
    args = ["--preset", preset, f"--{option}", *words.split()]
    result = experiment.main([*args, "--output", str(tmp_path)])
    (folder,) = (tmp_path / name).iterdir()
    assert json.loads((folder / "result.json").read_text()) == result
    assert result["passed"]
    calls = [
        call for replaced in (*parts.values(), report) for call in replaced.mock_calls
    ]
    given = [x for call in calls for x in call.args if isinstance(x, experiment.Config)]
    assert {value_of(config, option) for config in given} == {expected}
    stored = json.loads((folder / "config.json").read_text())["config"]
    for key in option.replace("-", "_").split("."):
        stored = stored[key]
    assert stored == (list(expected) if isinstance(expected, tuple) else expected)
    for part, replaced in parts.items():
        assert replaced.mock_calls, part
