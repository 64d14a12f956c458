"""`aioqueue worker`: run jobs until a signal, or until nothing is due."""

from __future__ import annotations

import click

from aioqueue.cli._options import app_dir_option, log_level_option, url_option

__all__ = ["worker"]


@click.command()
@click.argument("app", metavar="MODULE:REGISTRY")
@url_option
@app_dir_option
@log_level_option("info")
def worker(app: str, url: str, app_dir: str | None) -> None:
    """Run jobs."""
