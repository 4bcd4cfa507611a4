"""Append-only records of a run, for resuming it and for rebuilding its tables."""

from icltheory.bridge.records.store import Records
from icltheory.bridge.records.table import RecordTable
from icltheory.bridge.records.values import config_hash

__all__ = ["Records", "RecordTable", "config_hash"]
