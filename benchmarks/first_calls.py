"""Times the first and later calls of the most frequently used calculators.

Command
    python -m benchmarks.first_calls [--before FILE] [--json FILE]

Each calculator runs in a process of its own, as a user would call it from a prompt:
arrays are made, then the first call (which traces and compiles) and later ones (the
median of five) are timed, and so is a call under ``jax.jit`` of the same arguments once
it is compiled. ``--before`` adds the numbers of another revision that ``--json`` kept.
About a minute and a half.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import _alone

CALLS = {
    "bounds.noisy_steps": (
        "from icltheory.bounds import noisy_steps as f",
        "stack, pools, 20, scale=1 / 40",
    ),
    "noise.noise_spectrum": (
        "from icltheory.noise import noise_spectrum as f",
        "stack, pools[0], 20, scale=1 / 40",
    ),
    "trajectory.implicit_gd": (
        "from icltheory.trajectory import implicit_gd as f",
        "stack, pools[0], scale=1 / 40",
    ),
    "trajectory.implicit_gd_norms": (
        "from icltheory.trajectory import implicit_gd_norms as f",
        "stack, pools[0], scale=1 / 40",
    ),
    "regression.optimum": (
        "from icltheory.regression import LTB, optimum as f",
        "LTB, task, 40",
    ),
    "regression.gap": (
        "from icltheory.regression import gap as f",
        "task, 40",
    ),
    "Ridge.predict_prefixes": (
        "from icltheory.regression import Ridge; "
        "f = jax.vmap(Ridge(0.25).predict_prefixes)",
        "prompt.X, prompt.y",
    ),
    "optimum(LinearStep)": (
        "from icltheory.regression import LinearStep, optimum as f",
        "LinearStep, task, 40",
    ),
    "linalg.condition_number": (
        "from icltheory.linalg import condition_number as f",
        "jnp.eye(64) + jnp.ones((64, 64))",
    ),
}
_SET_UP = """
import json, statistics, time
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
from icltheory.attention import LinearAttentionStack
from icltheory.regression import LinearPopulation
normal = jax.random.normal
stack = LinearAttentionStack(*normal(jax.random.key(0), (3, 6, 4, 4)) / 3)
pools = normal(jax.random.key(1), (50, 40, 4))
task = LinearPopulation.isotropic(20, 0.25)
prompt = task.sample(jax.random.key(2), 40, 64)
"""
_TIME = """
def timed(call):
    start = time.perf_counter()
    jax.block_until_ready(jax.tree.leaves(call()))
    return time.perf_counter() - start
args, kwargs = (lambda *a, **k: (a, k))({arguments})
call = lambda: f(*args, **kwargs)
first, second = timed(call), timed(call)
later = statistics.median(timed(call) for _ in range(5))
program = jax.jit(call).lower().compile()
timed(program)
jitted = statistics.median(timed(program) for _ in range(5))
print(json.dumps(dict(first=first, second=second, later=later, jitted=jitted)))
"""


def measure(name: str) -> dict[str, float]:
    """Measures the call times of one calculator in a new process."""
    load, arguments = CALLS[name]
    code = f"{_SET_UP}\n{load}\n{_TIME.format(arguments=arguments)}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def table(now: dict, before: dict) -> list[str]:
    """Returns the times as lines of a Markdown table."""
    head = "| calculator | first call | second | later | compiled by the caller |"
    lines = [head, "|---|---|---|---|---|"]
    for name, times in now.items():
        cells = []
        for key in ("first", "second", "later", "jitted"):
            old = before.get(name, {}).get(key)
            was = "" if old is None or key == "jitted" else f" (was {_shown(old)})"
            cells.append(_shown(times[key]) + was)
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1e3 * seconds:.2g} ms"


def main(argv: list[str] | None = None) -> None:
    """Measures all calculators and prints the table."""
    parser = argparse.ArgumentParser(description="See the head of this module.")
    parser.add_argument("--before", type=Path, help="numbers of another revision")
    parser.add_argument("--json", type=Path, help="where to keep the numbers")
    options = parser.parse_args(argv)
    _alone.require_device()
    start = time.perf_counter()
    now = {name: measure(name) for name in CALLS}
    if options.json is not None:
        options.json.write_text(json.dumps(now, indent=1))
    before = {} if options.before is None else json.loads(options.before.read_text())
    print("\n".join(table(now, before)))
    ratio = statistics.median(one["later"] / one["jitted"] for one in now.values())
    seconds = time.perf_counter() - start
    print(
        f"\nLater calls take {ratio:.1f} times the compiled program; {seconds:.0f} s."
    )


if __name__ == "__main__":
    main()
