"""Experiments: ``python -m experiments.NAME``; nothing imports them."""

import sys

from experiments._frame import standins

# This precedes the import of any experiment, whose help page does not need JAX.
if standins.only_help(sys.orig_argv):
    standins.install()
