"""What cannot be written is an error of one line with the path, and leaves no part."""

import contextlib
import re

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import save_checkpoint
from icltheory.bridge.answers import Answer, AnswerFile
from icltheory.bridge.model import check_weights
from icltheory.bridge.spectra import SingularSystems
from icltheory.training import Checkpoints
from tests.bridge.tiny import model_of

resource = pytest.importorskip("resource")

# SQLite says so where a file may not grow; where a disk is full, that it is.
FULL = "File too large|disk I/O error"


@contextlib.contextmanager
def small_files(limit):
    """Lets no file grow beyond a limit, which fails as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def noise(size):
    return np.random.default_rng(0).standard_normal((size, size))


def run(path):
    Checkpoints(path).save(1, {"w": jnp.asarray(noise(90), jnp.float32)})


def beside_it(path):
    Checkpoints(path).save(1, {"w": jnp.ones(2)}, list(range(9000)))


def export(path):
    save_checkpoint(model_of("gpt2"), path / "out")


def answers(path):
    one = Answer("test", "0:mlp:0.5", 0, 1, np.ones(9000))
    AnswerFile(path / "r.sqlite").add({"task": "t"}, [one])


def systems(path):
    SingularSystems(path).of(noise(40))


@pytest.mark.parametrize(
    ("write", "named", "kept"),
    [
        (run, "step_00000001", []),
        (beside_it, "step_00000001", []),
        (export, "model.safetensors", []),
        (answers, "r.sqlite", ["r.sqlite", "r.sqlite-shm", "r.sqlite-wal"]),
        (systems, ".npz", []),
    ],
)
def test_a_full_disk_is_named_with_the_path(write, named, kept, tmp_path, capfd):
    check_weights(model_of("gpt2"))  # compiles, and JAX may write to its own cache
    with small_files(8000), pytest.raises(OSError, match=FULL) as caught:
        write(tmp_path)
    path = re.escape(str(tmp_path)) + f"/.*{re.escape(named)}'$"
    assert re.search(path, str(caught.value))
    assert "\n" not in str(caught.value)
    assert sorted(file.name for file in tmp_path.iterdir()) == kept
    assert "Traceback" not in capfd.readouterr().err
