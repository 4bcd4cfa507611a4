"""Strict settings for every test: float64, no silent broadcasting of ranks."""

import contextlib
import functools
import gc
import itertools
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# Traced programs are many small objects that live long: a collector that starts as
# often as Python's default takes an eighth of the suite's time.
gc.set_threshold(200_000, 50, 1000)

# Figures are drawn without a screen, in tests and in the programs that they start.
os.environ.setdefault("MPLBACKEND", "Agg")

# Workers share the cores: threads of pools, of XLA and of OpenBLAS, only wait for each
# other, and cost a third of the time of small programs.
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Compilation is most of the suite's time, and tests run each program a few times only:
# without optimisation, in one piece, and by the emitter that is twice as quick.
XLA_FLAGS = "--xla_backend_optimization_level=0"
QUICKER = "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false"


BEFORE_0_12 = version("jaxlib").startswith(("0.10.", "0.11."))


def _with(flags: str) -> str:
    return f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def _starts(flags: str) -> bool:
    """Whether XLA knows the flags; from 0.12 on it aborts at an unknown one."""
    if BEFORE_0_12:
        return True
    run = [sys.executable, "-c", "import jax; jax.devices('cpu')"]
    return not subprocess.run(
        run, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True
    ).returncode


# On a GPU the kernels under test are those that are used: fully optimised.
GPU = any(find_spec(f"jax_cuda{n}_plugin") for n in (12, 13))

# Workers, and programs that tests start as processes of their own, inherit them.
if XLA_FLAGS not in os.environ.get("XLA_FLAGS", "") and not GPU:
    quick = _with(f"{XLA_FLAGS} {QUICKER}")
    os.environ["XLA_FLAGS"] = quick if _starts(quick) else _with(XLA_FLAGS)

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

import tests.typechecker  # noqa: E402, F401  The option --jaxtyping-packages names it.

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")

# The same program traced again is read, not compiled. Not the other workers' programs:
# JAX reads what another process has not finished writing.
PROGRAMS = tempfile.TemporaryDirectory(prefix="programs-")  # gone as the process ends
if BEFORE_0_12:  # jaxlib 0.12.0.1 crashed while it wrote one
    jax.config.update("jax_compilation_cache_dir", PROGRAMS.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def _few_contexts(programs: int = 500) -> None:
    """Lowers so many programs in one context of MLIR; a new one takes 3 ms each."""
    from jax._src.interpreters import mlir

    if not hasattr(mlir, "make_ir_context"):
        return
    make, made = mlir.make_ir_context, itertools.count()
    kept = functools.lru_cache(1)(lambda _: make())

    def context():
        try:  # a program inside of one that is lowered would become a part of it
            inside = mlir.ir.Context.current is not None
        except ValueError:
            inside = False
        return make() if inside else kept(next(made) // programs)

    mlir.make_ir_context = context


if BEFORE_0_12:  # the names are private
    _few_contexts()

# Of the machine's memory, what all workers together may fill with compiled programs,
# and of the memory areas that the system allows a process, what one may hold: LLVM
# ends the process where it gets no more.
SHARE = 1 / 2


def _share_in_use(workers: int) -> float | None:
    """Largest fraction of a limit that this process has reached; None if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        areas = Path("/proc/self/maps").read_bytes().count(b"\n")
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
        return max(workers * pages / os.sysconf("SC_PHYS_PAGES"), areas / most)
    except (OSError, ValueError):
        return None


def pytest_runtest_teardown(item, nextitem):
    """Forgets compiled programs between modules, before they reach a limit."""
    if nextitem is None or nextitem.path == item.path:
        return
    used = _share_in_use(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    if used is None or used > SHARE:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def interrupted(monkeypatch):
    """A context manager that kills what trains within after a count of chunks."""

    @contextlib.contextmanager
    def after(count):
        from icltheory import training

        steps, calls = training.run, []

        def run(*args, **kwargs):
            for chunk in steps(*args, **kwargs):
                calls.append(chunk)
                yield chunk
                if len(calls) == count:
                    raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(training, "run", run)
            with pytest.raises(KeyboardInterrupt):
                yield

    return after


def pytest_collection_modifyitems(items):
    """Puts files with slow tests first, so that no worker begins one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


# Models that several files look at are trained once where one worker has the files.
TRAINED = re.compile(
    r"^from (tests\.\w+)(\.trained import| import .*\btrained\b)", re.MULTILINE
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keeps a file on one worker: its fixtures and programs are made once."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    @functools.cache
    def scope(file):
        shared = TRAINED.search((config.rootpath / file).read_text())
        return shared[1] if shared else file

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return scope(super()._split_scope(nodeid))

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.fixture
def as_for_a_user():
    """Annotations are checked in tests only; what a user meets are the own checks."""
    jaxtyping.config.update("jaxtyping_disable", True)
    with jax.numpy_rank_promotion("allow"):
        yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def _no_open_figures():
    """Matplotlib keeps open figures, and warns from the twentieth on."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
