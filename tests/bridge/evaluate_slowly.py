"""A run to be killed: evaluates a grid into the file PATH, and logs to LOG.

Each evaluation is logged before it is recorded; with a third argument the process kills
itself in the middle of a write, after so many records.
"""

import os
import signal
import sys
import time

from tests.bridge.alone import alone

if __name__ == "__main__":
    alone("icltheory.bridge")

from icltheory.bridge.records import Records  # noqa: E402

CONFIG = {"model": "toy", "seed": 0}
GRID = [
    (example, layer, "mlp", rate)
    for layer in (0, 3)
    for rate in (0, 0.1, 0.995)
    for example in range(40)
]


def evaluate(key):
    example, layer, _, rate = key
    scores = [float(example * rate), float(layer) - 0.1 * example]
    if example == 7:
        scores[0] = float("nan")
    return {"prediction": -1 if example == 7 else example % 2, "scores": scores}


def run(path, log, pause=0.0, tear_after=None):
    records = Records(path, config=CONFIG)
    todo = [key for key in GRID if key not in records]
    for start in range(0, len(todo), 4):
        part = todo[start : start + 4]
        with open(log, "a") as file:
            file.writelines(f"{key}\n" for key in part)
        lines = [
            dict(zip(records.key_fields, k, strict=True)) | evaluate(k) for k in part
        ]
        if tear_after is not None and len(records) >= tear_after:
            tear(path)
        records.append(lines)
        time.sleep(pause)
    return records


def tear(path):
    """Dies like a process that was killed between two parts of one write."""
    with open(path, "ab", buffering=0) as file:
        file.write(b'{"example":3,"layer":')
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    after = int(sys.argv[3]) if len(sys.argv) > 3 else None
    run(sys.argv[1], sys.argv[2], pause=0.01, tear_after=after)
