"""`python -m aioqueue`: the command line."""

from __future__ import annotations

from aioqueue.cli import main

if __name__ == "__main__":
    main()
