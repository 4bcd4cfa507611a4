"""Published scores as counts: which were divided by n, which by n - 1."""

import pytest

from icltheory.bridge.tasks import possible_counts

# Tables 6 and 7: score, test examples, count over one less.
SHORT = [
    (0.56884, 277, 157),
    (0.57971, 277, 160),
    (0.56159, 277, 155),
    (0.57608, 277, 159),
    (0.58181, 56, 32),
    (0.67272, 56, 37),
    (0.83636, 56, 46),
    (0.85454, 56, 47),
    (0.87272, 56, 48),
]
# Tables 3, 4 and 5: score, test examples, digits, count over all.
WHOLE = [
    (0.76434, 7600, 5, 5809),
    (0.77026, 7600, 5, 5854),
    (0.84881, 7600, 5, 6451),
    (0.69032, 5509, 5, 3803),
    (0.77110, 5509, 5, 4248),
    (0.66492, 1725, 5, 1147),
    (0.666666, 1725, 6, 1150),
]


@pytest.mark.parametrize(("score", "n", "count"), SHORT)
def test_rte_and_cb_were_divided_by_one_less(score, n, count):
    assert possible_counts(score, n, 5) == {"n-1": (count,)}


@pytest.mark.parametrize(("score", "n", "digits", "count"), WHOLE)
def test_agnews_emoc_and_mrpc_were_divided_by_all(score, n, digits, count):
    assert possible_counts(score, n, digits)["n"] == (count,)
    assert count / n == pytest.approx(score, abs=10.0**-digits)


def test_mrpc_fits_nothing_else():
    assert list(possible_counts(0.66492, 1725, 5)) == ["n"]
    assert list(possible_counts(0.666666, 1725, 6)) == ["n"]
    assert list(possible_counts(0.76434, 7600, 5)) == ["n"]


def test_every_count_is_found_printed_either_way():
    for n in (2, 9, 57):
        for k in range(n + 1):
            for score in (round(k / n, 6), int(k / n * 10**6) / 10**6):
                assert k in possible_counts(score, n, 6)["n"]


def test_few_digits_decide_nothing_and_wrong_ones_fit_nothing():
    # Table 2's four digits over 59,339 examples
    assert list(possible_counts(0.7527, 59339, 4)) == ["n", "n-1"]
    assert possible_counts(0.51, 3, 2) == {}
    assert possible_counts(1, 7, 0)["n"] == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.123, 10, 2), "score: expected at most 2 digits"),
        ((1.2, 10, 2), r"score: expected a number in \[0, 1\]"),
        ((0.5, 1, 2), "n: expected an integer >= 2, got 1"),
        ((0.5, 10, -1), "digits: expected"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        possible_counts(*arguments)
