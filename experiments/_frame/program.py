"""Runs an experiment as a program: errors in one line, and exit statuses."""

import os
import sys
from collections.abc import Callable
from typing import Any


def run_program(main: Callable[[], Any]) -> None:
    """Runs ``main``; reports user errors in one line and exits with status 2.

    An interrupt (Ctrl-C) is reported in one line too, with status 130. With the
    variable ``ICLTHEORY_TRACEBACK`` both are raised instead.
    """
    try:
        main()
    except KeyboardInterrupt:
        if os.environ.get("ICLTHEORY_TRACEBACK"):
            raise
        print("interrupted; to continue the run, give --resume RUN", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError, FloatingPointError) as error:
        if os.environ.get("ICLTHEORY_TRACEBACK"):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
