"""``python -m experiments.ledger``."""

from experiments._frame.program import run_program
from experiments.ledger.main import main

run_program(main)
