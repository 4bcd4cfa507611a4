"""``python -m experiments.ledger``."""

from experiments.frame import program
from experiments.ledger.main import main

program(__name__, main)
