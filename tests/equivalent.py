"""Changes of :mod:`tests.mutations` that no test can notice, each with its reason."""

# (file, function, line before, line after): reason
EQUIVALENT: dict[tuple[str, str, str, str], str] = {}
