"""``python -m experiments.ledger``."""

import sys

from experiments import _run
from experiments.ledger.main import main

_run.main(lambda: sys.exit(main()))
