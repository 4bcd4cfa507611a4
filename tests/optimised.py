"""Compilation with optimisation, for the programs that run longer than they compile."""

import functools

import jax

# The other programs of the tests are compiled without it, see conftest.py.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 3})
