"""``python -m experiments.prune_icl``."""

from experiments import _run
from experiments.prune_icl.main import main

_run.main(main)
