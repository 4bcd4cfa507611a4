"""Append-only records of a run, from which it resumes and its tables are rebuilt."""

from icltheory._public import shown
from icltheory.bridge.records.store import Records
from icltheory.bridge.records.table import RecordTable
from icltheory.bridge.records.values import config_hash

__all__ = ["Records", "RecordTable", "config_hash"]

__dir__ = shown(__name__)
