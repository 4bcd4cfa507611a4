"""Curricula: Garg's published schedule, step by step."""

import jax
import pytest

from icltheory.training import Curriculum, Ramp


def test_gargs_schedule():
    """Appendix A.2: dims 5 to 20 and points 11 to 41, each stair of 2000 steps."""
    garg = Curriculum(Ramp(5, 20, 1, 2000), Ramp(11, 41, 2, 2000))
    dims, points = 5, 11
    for step in range(0, 40_000, 500):
        if step and step % 2000 == 0:
            dims, points = min(dims + 1, 20), min(points + 2, 41)
        assert (garg.dims(step), garg.points(step)) == (dims, points)
    assert int(garg.dims(29_999)) == 19
    assert int(garg.dims(30_000)) == 20


def test_a_traced_step_gives_the_same_value():
    ramp = Ramp(1, 9, 3, 10)
    for step in (0, 9, 10, 19, 20, 1000):
        assert int(jax.jit(ramp)(step)) == int(ramp(step))


@pytest.mark.parametrize(("end", "steps"), [(20, 20), (30, 20)])
def test_an_increment_of_0_stays(end, steps):
    """As ``inc: 0`` in Garg's configurations."""
    assert [int(Ramp(20, end, 0, 2000)(t)) for t in (0, 5000)] == [steps, steps]


def test_none_is_full_from_the_start():
    assert (Curriculum.none(3, 7).dims(0), Curriculum.none(3, 7).points(0)) == (3, 7)


@pytest.mark.parametrize("args", [(0, 5), (3, 2), (1, 5, -1), (1, 5, 1, 0)])
def test_bad_ramps_are_refused(args):
    with pytest.raises(ValueError, match="expected"):
        Ramp(*args)
