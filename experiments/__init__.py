"""Experiments: ``python -m experiments.NAME``; nothing imports them."""

import sys

from experiments._frame import standins

# Before any experiment is imported: its help page needs no JAX.
if standins.only_help(sys.orig_argv):
    standins.install()
