"""``python -m experiments.pattern_icl``."""

from experiments import _run
from experiments.pattern_icl.main import main

_run.main(main)
