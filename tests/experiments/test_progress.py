"""Progress of a run: its stages, its speed, and lines where there is no terminal."""

import io
import time

import pytest
from rich.console import Console

from experiments.frame import Run, progress
from experiments.frame.progress import Activity, Display


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress.time, "perf_counter", clock.perf_counter)
    return clock


def test_compiling_is_named_and_does_not_count_for_the_speed(clock):
    activity = Activity("training gpt2", 100, done=20, unit="steps")
    activity.enter("compiling")
    clock.now += 50
    assert activity.state() == "compiling, 20 of 100 steps, 50 s"
    activity.enter("training")
    clock.now += 4
    activity.advance(40)
    activity.shown = "loss 0.250"
    # 40 steps in 4 s: the other 40 take 4 s more. The label names the stage already.
    assert activity.state() == ("60 of 100 steps, loss 0.250, 54 s, about 4 s left")
    activity.enter("compiling")
    clock.now += 30
    assert activity.seconds_left == pytest.approx(4)


def test_a_callback_is_followed_from_its_start(clock):
    activity = Activity("pruning")
    clock.now += 7
    activity.follow(0, 8, "reading")
    clock.now += 120
    activity.follow(4, 8, "scoring")
    assert activity.state() == "scoring, 4 of 8, 127 s, about 2 min 0 s left"


def test_without_a_total_there_is_the_time_alone(clock):
    activity = Activity("theory")
    clock.now += 61
    assert activity.state() == "61 s"
    assert Activity("training", 1, unit="steps").state() == "0 of 1 step, 0 s"
    assert progress._duration(59.4) == "59 s"
    assert progress._duration(7260) == "2 h 1 min"


def test_where_there_is_no_terminal_the_innermost_activity_has_a_line(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.02)
    console = Console(file=io.StringIO(), width=120)
    display = Display(console)
    with display.during(Activity("evaluation")):
        for _ in display.track(range(2), Activity("[drawing]", 2, unit="figures")):
            time.sleep(0.1)
    printed = console.file.getvalue().splitlines()
    assert printed[0] == "[drawing]: 0 of 2 figures, 0 s"
    assert any(line.startswith("[drawing]: 1 of 2 figures") for line in printed)
    assert not any(line.startswith("evaluation") for line in printed)
    time.sleep(0.1)
    assert console.file.getvalue().splitlines()[: len(printed) + 1] == printed


def test_a_terminal_shows_bars_that_end_with_an_error():
    file = io.StringIO()
    display = Display(Console(file=file, force_terminal=True, width=120))

    def fails():
        with (
            display.during(Activity("training")),
            display.during(Activity("[gpt2]", 3, unit="steps")) as activity,
        ):
            activity.enter("compiling")
            time.sleep(0.4)
            raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        fails()
    assert "[gpt2]" in file.getvalue()
    assert "compiling, 0 of 3 steps" in file.getvalue()
    assert file.getvalue().endswith("\x1b[1A\x1b[2K")  # the bars are gone


def test_a_quiet_console_shows_nothing(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    console = Console(file=io.StringIO(), quiet=True)
    with Display(console).during(Activity("training")):
        time.sleep(0.05)
    assert console.file.getvalue() == ""


def test_phases_and_items_of_a_run_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "INTERVAL", 0.02)
    run = Run(tmp_path)
    with run.phase("evaluation"):
        for _ in run.track((1, 2), "sweeps", unit="seeds"):
            time.sleep(0.05)
    printed = capsys.readouterr().out
    assert "sweeps: 0 of 2 seeds, 0 s" in printed
    assert printed.splitlines()[-1].startswith("evaluation: ")
