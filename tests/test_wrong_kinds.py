"""Arguments of a wrong kind for every public function that is no calculator.

The functions and their arguments come from the list of public names and the examples of
their documentation. Each outcome is a result, or an error of one line that names the
argument. ``test_bad_values.py`` tries the calculators.
"""

import inspect
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from icltheory import _named_errors
from icltheory._typing import PyTree
from icltheory.pruning import choose_rate, sweep
from tests import bad_values

pytestmark = pytest.mark.usefixtures("as_for_a_user")
# Files of users: what is wrong with them is an OSError that names the file.
FILES = "icltheory.bridge.checkpoint", "icltheory.bridge.export.save"
# Plotting imports nothing of the package, and tests/plotting tries its figures.
UNCHECKED = ("icltheory.plotting.",)
OTHERS = bad_values.public_functions(calculator=False)
TRIED = [name for name in OTHERS if not name.startswith((*UNCHECKED, *FILES))]


def kinds(function):
    """What each argument is annotated with; ``Any`` is left out."""
    hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    return {name: kind for name, kind in hints.items() if kind is not Any}


def required(function):
    """The names of the arguments that have no default."""
    parameters = inspect.signature(function).parameters.values()
    return [
        p.name for p in parameters if p.default is p.empty and p.kind != p.VAR_KEYWORD
    ]


def wrong_values(kind, value):
    """Values that an argument of this kind cannot have."""
    options = _named_errors._options(kind)
    if any(option is Any for option in options):
        return
    yield object()
    if not {str, Path} & set(options) and "Literal" not in str(kind):
        yield "text"
    if type(None) not in options:
        yield None
    if bad_values.is_number(value):
        array = np.asarray(value)
        yield array * 1j if array.ndim else 1j
        yield from (array.astype(np.longdouble), np.ma.masked_array(array))


def test_all_of_them_are_marked():
    plotting = "icltheory.plotting."
    unmarked = {n for n, f in OTHERS.items() if not hasattr(f, "named_errors")}
    assert {n for n in unmarked if not n.startswith(plotting)} == set()
    assert len(TRIED) > 120


@pytest.mark.slow
@pytest.mark.parametrize("full_name", TRIED)
def test_no_wrong_kind_ends_in_an_error_nobody_can_read(full_name, tmp_path):
    function = OTHERS[full_name]
    try:
        given = bad_values.example(function)
    except StopIteration:  # its example makes no call that stands alone
        given = dict.fromkeys(required(function), object())
        if any(kinds(function).get(name, Any) is not Any for name in given):
            _try(function, given, next(iter(given)))
        return
    for argument, value in given.items():
        kind = kinds(function).get(argument, Any)
        if kind is Any:
            continue
        for wrong in wrong_values(kind, value):
            _try(function, given | {argument: wrong}, argument)


def _try(function, given, argument):
    try:
        function(**given)
    except (ValueError, TypeError) as error:
        text = str(error)
        names = [name for name in given if name in text]
        assert names, f"{argument} is not named: {text}"
        assert "\n" not in text, text
        assert len(text) < 300, text


def test_the_argument_that_does_not_fit_is_named():
    @_named_errors.named_errors
    def scaled(values: np.ndarray, factor: float, rule: "str | None" = None):
        """Multiplies; fails within on what is no array."""
        return values.sum() * factor

    assert scaled(np.ones(2), 2.0) == 4
    for given, message in (
        (("ones", 2.0), "values: expected ndarray, got 'ones'"),
        ((np.ones(2) * 1j, 2.0), "values: expected real numbers, got complex"),
        ((np.ones(2), [1, 2, 3, {}]), "factor: expected a number, got [1, 2, 3, {}]"),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            scaled(*given)
        assert str(caught.value) == message


def test_errors_of_functions_that_are_passed_in_stay_as_they_are():
    @_named_errors.named_errors
    def applied(function: typing.Callable, tree: PyTree):
        """Calls what it is given."""
        return function(tree)

    def fails(tree):
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        applied(fails, {"a": np.ones(2)})
    for tree, got in ((None, "None"), ("text", "'text'"), ({"a": "b"}, "{'a': 'b'}")):
        message = f"^tree: expected a tree of arrays, got {got}$"
        with pytest.raises(ValueError, match=message):
            applied(fails, tree)


def test_scores_and_functions_of_another_kind_are_named():
    with pytest.raises(ValueError, match="^rates: expected numbers, got 'half'$"):
        choose_rate([1.0], "half", 0.5)
    with pytest.raises(ValueError, match="^unpruned_score: expected real numbers, got"):
        choose_rate([1.0], [0.5], 1j)
    given = bad_values.example(sweep)
    with pytest.raises(ValueError, match="^score: expected a function, got 'mean'$"):
        sweep(**(given | {"score": "mean"}))
