"""``python -m icltheory``: the command of :mod:`icltheory.runs.command`."""

from icltheory.runs.command import main

if __name__ == "__main__":
    raise SystemExit(main())
