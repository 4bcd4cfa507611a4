"""Every numbered statement, its status, and what its tests measure now.

Command
    python -m experiments.ledger [--quick] [--output LEDGER.md] [--processes N]

What it does
    Runs the tests that the statements name (all of ``tests/identities`` and a few
    beside it) and prints, for each statement of each paper: its status, the kind of
    evidence (from proof to none), the corrected form, the function, the tests and their
    outcome, and the numbers they measured just now. Writes the same as a page.
    ``--quick`` leaves out the tests marked slow. ``python -m
    experiments.ledger.coverage`` lists every theorem, display, table and figure of the
    five documents with its row.

Expect
    Three to six minutes on two cores. A statement without a test says so. Status 1 if a
    test fails, cannot be run or belongs to no statement, 2 if the command line is
    wrong.
"""
