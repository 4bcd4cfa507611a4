"""Every numbered statement, its status, and what its tests measure now.

Command
    python -m experiments.ledger [--quick] [--page] [--output FILE] [--processes N]

What it does
    Reads the statements, one TOML file per paper, and runs the tests with the mark
    ``statement``. Stores what they measure and writes docs/reference/ledger.md: status,
    kind of evidence, corrected form, function, tests and numbers of each statement.
    ``--quick`` leaves out the tests marked slow, ``--page`` only writes the page, from
    the stored numbers. ``python -m experiments.ledger.coverage`` lists every theorem,
    display, table and figure of the five documents with its row.

Expect
    Three to six minutes on two cores. Status 1 if a test fails, cannot be run or
    belongs to no statement, 2 if the command line is wrong.
"""
