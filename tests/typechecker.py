"""beartype as the checker of annotations, applied to a function at its first call.

Each worker of a test run imports the whole library and calls a part of it: decorating
all functions as they are imported takes a fifth of the time to collect the tests.
"""

import functools

import beartype


def check_at_first_call(function):
    """``beartype.beartype``, deferred."""
    checked = None

    @functools.wraps(function)
    def call(*args, **kwargs):
        nonlocal checked
        if checked is None:
            checked = beartype.beartype(function)
        return checked(*args, **kwargs)

    return call
