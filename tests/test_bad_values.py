"""Wrong values for every argument of every calculator, generated from its example.

Each outcome is the right value, NaN, or an error of one line that names the argument.
"""

import typing
from typing import Any

import jax
import numpy as np
import pytest

from tests import bad_values

CALCULATORS = bad_values.public_functions(calculator=True)
# Sums that no orthonormal patterns have are told by ``is_feasible`` where traced.
TOLD = {("out_of_domain_patterns", "coefficient_sum")}
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_for_a_user")]


class Case:
    """A calculator and the arguments of its example.

    Attributes:
        name: Its name.
        function: The calculator.
        given: The arguments.
        result: What it returns.
    """

    def __init__(self, full_name):
        self.name = full_name.rpartition(".")[2]
        self.function = CALCULATORS[full_name]
        self.given = bad_values.example(self.function)
        self.result = self.function(**self.given)

    def kind(self, argument):
        """The annotation of an argument."""
        return typing.get_type_hints(self.function)[argument]

    def with_(self, argument, value):
        """What it returns with another value of one argument."""
        return self.function(**(self.given | {argument: value}))

    def refuses(self, argument, value):
        """Raises unless the value is refused by an error that names the argument."""
        with pytest.raises((ValueError, TypeError)) as error:
            self.with_(argument, value)
        self.is_clear(error.value, argument)

    def is_clear(self, error, argument):
        """Raises unless an error is one line that names the argument."""
        assert isinstance(error, (ValueError, TypeError)), error
        text = str(error)
        assert argument in text, f"{argument} is not named: {text}"
        assert "\n" not in text, text
        assert len(text) < 250, text

    def outcome(self, argument, value):
        """The result, or ``None`` where the value is refused clearly."""
        try:
            return self.with_(argument, value)
        except (ValueError, TypeError) as error:
            # Of shapes that do not fit together the error may name either.
            names = [name for name in self.given if name in str(error)]
            self.is_clear(error, argument if argument in names else names[0])
            return None


@pytest.mark.parametrize("full_name", CALCULATORS)
def test_no_wrong_value_passes_in_silence(full_name):
    case = Case(full_name)
    for argument, value in case.given.items():
        if bad_values.is_key(value):
            for wrong in (0, jax.random.PRNGKey(0), jax.random.split(value)):
                case.refuses(argument, wrong)
        elif bad_values.is_number(value):
            _check_kinds(case, argument, np.asarray(value))
            _check_values(case, argument, value)
        elif isinstance(value, str):
            case.refuses(argument, "no such name")
        elif jax.tree.leaves(value) and case.kind(argument) is not Any:
            for wrong in (object(), "text"):
                case.refuses(argument, wrong)


def _check_kinds(case, argument, value):
    """Text and complex numbers are refused; lists and integers are numbers."""
    case.refuses(argument, "text")
    case.refuses(argument, value * (1 + 1j) if value.ndim else complex(value) + 1j)
    long = case.outcome(argument, value.astype(np.longdouble))
    assert long is None or bad_values.equal(long, case.result)
    case.outcome(argument, value[None, None, None])
    if value.ndim:
        other = value.astype(value.dtype.newbyteorder())
        assert bad_values.equal(case.with_(argument, other), case.result)
        assert bad_values.equal(case.with_(argument, value.tolist()), case.result)
        if value.dtype.kind == "f" and np.all(value == np.round(value)):
            whole = case.with_(argument, value.astype(int))
            assert bad_values.equal(whole, case.result)


def _check_values(case, argument, value):
    """Out of range: refused where it is known, and NaN where it is traced."""
    array = np.asarray(value)
    below = -np.abs(array) - 1
    wrong = [below if array.ndim else below.item()]
    if isinstance(value, int):
        wrong += [0, 2.5]
    if array.dtype.kind == "f":
        wrong.append(np.full(array.shape, np.nan))
    run = jax.jit(lambda bad: case.with_(argument, bad))
    for bad in wrong:
        result = case.outcome(argument, bad)
        unknown = np.any(np.isnan(bad))
        if unknown and result is not None and bad_values.floats(result):
            assert _has_nan(result), f"{argument}: NaN is lost"
        try:
            unseen = run(bad)
        except (ValueError, TypeError):
            continue  # an argument that cannot be traced
        if (case.name, argument) in TOLD:
            continue
        if result is None:
            assert _has_nan(unseen) or not bad_values.floats(unseen), (argument, bad)
        else:
            assert bad_values.equal(unseen, result), (argument, bad)


def _has_nan(result):
    return any(np.isnan(array).any() for array in bad_values.floats(result))
