"""What all experiments share: command line, run folder, phases, reports, cluster jobs.

An experiment's ``main`` reads its command line (:mod:`.command_line`), begins a
:class:`.run.Run`, measures in phases, and hands a :class:`.report.Report` to
``Run.finish``, which prints, draws and stores it.
"""
