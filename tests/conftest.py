"""Strict settings for every test: float64, no silent broadcasting of ranks."""

import importlib.util
import mmap
import os
import resource
import sys
from pathlib import Path

# Compilation is most of the suite's time, and tests run each program a few times only:
# without optimisation, by the emitter that is twice as quick, in one piece.
XLA_FLAGS = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
}


def _is_known(flag: str) -> bool:
    """Whether XLA has the flag; of one that it has not it would abort."""
    (folder,) = importlib.util.find_spec("jaxlib").submodule_search_locations
    for path in Path(folder).glob("libjax_common.*"):
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library,
        ):
            return library.find(flag.encode()) >= 0
    return False


# Workers, and programs that tests start as processes of their own, inherit them.
_given = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = " ".join(
    [_given]
    + [
        f"--{flag}={value}"
        for flag, value in XLA_FLAGS.items()
        if f"--{flag}=" not in _given and _is_known(flag)
    ]
).strip()

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")


_ENOUGH = 2 * 2**30


def pytest_runtest_teardown(item, nextitem):
    """Forgets compiled programs between modules, before they fill the memory."""
    if nextitem is None or nextitem.path == item.path:
        return
    # Kilobytes, but for macOS, which counts bytes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    if peak > _ENOUGH:
        jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(0)


def pytest_collection_modifyitems(items):
    """Puts files with slow tests first, so that no worker begins one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keeps a file on one worker: its fixtures and programs are made once."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)
