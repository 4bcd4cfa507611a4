"""``python -m experiments.ledger``."""

import sys

from experiments._frame.program import run_program
from experiments.ledger.main import main

run_program(lambda: sys.exit(main()))
