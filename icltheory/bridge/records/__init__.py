"""Append-only records of a run, from which it resumes and its tables are rebuilt."""

from icltheory.bridge.records.store import Records
from icltheory.bridge.records.table import Table
from icltheory.bridge.records.values import config_hash

__all__ = ["Records", "Table", "config_hash"]
