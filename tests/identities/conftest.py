"""What an identity test measured, kept for the ledger."""

import numpy as np
import pytest


@pytest.fixture
def measured(record_property):
    """Records a number beside its name: ``measured("relative error", 3e-16)``."""

    def record(name, value):
        record_property(name, float(np.asarray(value)))

    return record
