"""``python -m experiments.ltb_gpt2``."""

from experiments import _run
from experiments.ltb_gpt2.main import main

_run.main(main)
