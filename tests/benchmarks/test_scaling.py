"""The model of training on many devices, against what it must be in plain cases."""

import pytest

from benchmarks._scaling_model import Compute, Network, predict

NETWORK = Network(1e9, 1e-5, 1e8, 1e-4, devices=4)


def test_times_on_one_device_are_fitted():
    found = Compute.fit({16: 2.6, 32: 4.2, 64: 7.4})
    assert (found.fixed, found.per_prompt) == pytest.approx((1.0, 0.1))
    with pytest.raises(ValueError, match="seconds: expected two batches or more"):
        Compute.fit({16: 2.6})


def test_a_sum_is_a_ring_within_a_host_and_one_between_hosts():
    within = 2 * 1e-5 + 1.5 * 1e6 / 1e9
    assert NETWORK.seconds(1, 1e6, 2) == 0
    assert NETWORK.seconds(2, 1e6, 2) == pytest.approx(2 * 1e-5 + 1e6 / 1e9)
    assert NETWORK.seconds(4, 1e6, 2) == pytest.approx(within)
    between = 2 * 1e-4 + 1.0 * 1e6 / 4 / 1e8
    assert NETWORK.seconds(8, 1e6, 2) == pytest.approx(within + between)


def test_members_scale_exactly_and_batches_no_further_than_the_fixed_time():
    compute = Compute(0.001, 0.0001)
    found = {
        (row.way, row.devices): row
        for row in predict(compute, NETWORK, 64, 1e6, 2, (4, 64))
    }
    assert found["a member on each", 64].efficiency == 1
    assert found["a member on each", 64].exchange == 0
    split = found["batch 64 split", 4]
    assert split.step == pytest.approx(0.001 + 0.0016 + NETWORK.seconds(4, 1e6, 2))
    assert found["batch 64 split", 64].speed < compute.seconds(64) / 0.001
    assert found["batch 64 on each", 4].efficiency > split.efficiency
