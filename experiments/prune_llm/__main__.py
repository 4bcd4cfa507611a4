"""``python -m experiments.prune_llm``."""

from experiments import _run
from experiments.prune_llm.main import main

_run.main(main)
