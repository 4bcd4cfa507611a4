"""Checkpoints: whole or absent, exact, and honest about damage."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.training import Checkpoints, TrainState, checkpoints
from tests.raising import raises


def state(step):
    params = {"w": jnp.arange(6.0).reshape(2, 3) + step, "b": jnp.float32(0.1)}
    return TrainState(jnp.int32(step), jnp.int32(7), params, ({"mu": params["w"]},))


def filled(folder, steps, **kwargs):
    store = Checkpoints(folder, **kwargs)
    for step in steps:
        store.save(step, state(step), {"metrics": [{"step": step, "loss": 0.1 + step}]})
    return store


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def data_files(folder):
    files = [p for p in (folder / "state").rglob("*") if p.is_file()]
    return sorted(files, key=lambda p: p.stat().st_size)


def test_what_is_saved_comes_back_bit_for_bit(tmp_path):
    store = filled(tmp_path, [10])
    restored = store.restore(state(0))
    jax.tree.map(np.testing.assert_array_equal, restored.state, state(10))
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(restored.state)]
    assert dtypes == [leaf.dtype for leaf in jax.tree.leaves(state(10))]
    assert restored.extra == {"metrics": [{"step": 10, "loss": 10.1}]}
    assert restored.damaged == ()


def test_the_newest_is_restored_and_the_oldest_go(tmp_path):
    store = filled(tmp_path, [1, 2, 3, 20], keep=2)
    assert names(tmp_path) == ["step_00000003", "step_00000020"]
    assert int(store.restore(state(0)).state.step) == 20


def test_an_empty_folder_restores_nothing(tmp_path):
    assert Checkpoints(tmp_path).restore(state(0)).state is None


@pytest.mark.parametrize("which", [0, -1])
def test_a_truncated_newest_is_named_and_the_one_before_is_used(tmp_path, which):
    filled(tmp_path, [1, 2])
    victim = data_files(tmp_path / "step_00000002")[which]
    victim.write_bytes(victim.read_bytes()[:-1])
    before = victim.read_bytes()
    store = Checkpoints(tmp_path)
    restored = store.restore(state(0))
    assert int(restored.state.step) == 1
    assert len(restored.damaged) == 1
    assert "checkpoint step_00000002 is damaged" in restored.damaged[0]
    assert victim.name in restored.damaged[0]
    store.save(2, state(2))
    assert victim.read_bytes() == before
    assert int(Checkpoints(tmp_path).restore(state(0)).state.step) == 2


def test_a_missing_file_and_a_missing_manifest_are_damage(tmp_path):
    filled(tmp_path, [1, 2, 3])
    data_files(tmp_path / "step_00000002")[0].unlink()
    (tmp_path / "step_00000003" / "manifest.json").unlink()
    restored = Checkpoints(tmp_path).restore(state(0))
    assert int(restored.state.step) == 1
    assert "step_00000003 is damaged: no readable manifest" in restored.damaged[0]
    (tmp_path / "step_00000003" / "manifest.json").write_text("[]")
    assert Checkpoints(tmp_path).restore(state(0)).damaged[0] == restored.damaged[0]
    assert "step_00000002" in restored.damaged[1]
    assert "is missing" in restored.damaged[1]


def test_if_all_are_damaged_all_are_named(tmp_path):
    filled(tmp_path, [1, 2])
    for step in (1, 2):
        (tmp_path / f"step_0000000{step}" / "extra.json").write_text("{}")
    with pytest.raises(ValueError, match=r"step_00000002.*step_00000001"):
        Checkpoints(tmp_path).restore(state(0))


def test_what_a_kill_leaves_half_written_is_not_a_checkpoint(tmp_path):
    filled(tmp_path, [1])
    (tmp_path / "step_00000001").rename(tmp_path / ".writing_step_00000002")
    store = Checkpoints(tmp_path)
    assert store.restore(state(0)).state is None
    store.save(2, state(2))
    assert names(tmp_path) == ["step_00000002"]


def test_a_state_of_another_run_is_refused(tmp_path):
    store = filled(tmp_path, [1])
    other = TrainState(jnp.int32(0), jnp.int32(0), {"v": jnp.ones(3)}, ())
    with pytest.raises(ValueError, match="does not match the state of this run"):
        store.restore(other)
    narrow = jax.tree.map(lambda leaf: leaf[..., :1] if leaf.ndim else leaf, state(1))
    with pytest.raises(ValueError, match=r"run: [\w/]+: expected shape \(.*\), got"):
        store.restore(narrow)


@pytest.mark.parametrize(
    ("saved", "wanted", "kept"),
    [
        *(("float32", "int32", False), ("float32", "bfloat16", False)),
        *(("int32", "int8", False), ("int32", "float32", False)),
        *(("complex64", "float32", False), ("uint32", "int32", False)),
        *(("bfloat16", "float32", True), ("int8", "int32", True)),
    ],
)
def test_a_leaf_is_read_in_a_dtype_that_holds_it_alone(tmp_path, saved, wanted, kept):
    store = Checkpoints(tmp_path)
    store.save(1, {"a": {"w": jnp.array([1.75, 2.5]).astype(saved)}})
    like = {"a": {"w": jnp.zeros(2, wanted)}}
    if not kept:
        with pytest.raises(
            ValueError, match=f"run: a/w: expected {wanted}, got {saved}"
        ):
            store.restore(like)
        return
    found = store.restore(like).state["a"]["w"]
    assert found.dtype == wanted
    np.testing.assert_array_equal(found, jnp.array([1.75, 2.5]).astype(saved))


def test_numbers_of_python_are_not_cut_either(tmp_path):
    store = Checkpoints(tmp_path)
    store.save(1, {"rate": 2.5, "count": 3})
    assert store.restore({"rate": 0.0, "count": 0}).state == {"rate": 2.5, "count": 3}
    with pytest.raises(ValueError, match="run: rate: expected int64, got float64"):
        store.restore({"rate": 0, "count": 0})


@pytest.mark.parametrize("wrong", [None, {}, jnp.ones(2), 3, {"w": 1.0, "s": "a"}])
def test_a_state_that_is_no_tree_of_arrays_leaves_nothing(tmp_path, wrong):
    with pytest.raises(ValueError, match="^state.*: expected a tree of arrays, got"):
        Checkpoints(tmp_path).save(1, wrong)
    time.sleep(0.1)  # for threads that would still write
    assert names(tmp_path) == []


def test_what_is_saved_beside_is_checked_before_writing(tmp_path):
    store = Checkpoints(tmp_path)
    numbers = {"a": np.float32(0.5), "b": jnp.int32(2), "c": np.bool_(True)}
    store.save(1, state(1), numbers)
    assert store.restore(state(0)).extra == {"a": 0.5, "b": 2, "c": True}
    for wrong in ({1}, np.ones(2), 1j, {(1, 2): 3}):
        with pytest.raises(ValueError, match="^extra: expected a JSON value, got"):
            store.save(2, state(2), wrong)
    assert names(tmp_path) == ["step_00000001"]


def test_what_fails_leaves_nothing(tmp_path, monkeypatch):
    store = filled(tmp_path, [1])
    monkeypatch.setattr(checkpoints, "_digests", lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.save(2, state(2))
    assert names(tmp_path) == ["step_00000001"]


def test_a_path_that_could_be_written_and_not_read_is_refused(tmp_path):
    with raises(f"folder: expected a path without [ and ], got {tmp_path}/runs[2]"):
        Checkpoints(tmp_path / "runs[2]" / "checkpoints")
    assert not list(tmp_path.iterdir())


def test_keep_is_checked(tmp_path):
    with pytest.raises(ValueError, match="keep: expected a positive integer, got 0"):
        Checkpoints(tmp_path, keep=0)
