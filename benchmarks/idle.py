"""What an idle worker costs: `python -m benchmarks.idle [--url URL] [--seconds N]`. Needs psutil."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time

import psutil  # type: ignore[import-untyped]  # it ships no type information


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default a new SQLite file")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long it's watched")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aioqueue-idle-") as folder:
        url = arguments.url or f"sqlite:///{folder}/idle.db"
        command = [sys.executable, "-m", "aioqueue.worker", "benchmarks.latency:registry", "--log-level", "warning"]
        worker = subprocess.Popen([*command, "--url", url])
        try:
            process = psutil.Process(worker.pid)
            time.sleep(3)
            before = process.cpu_times()
            time.sleep(arguments.seconds)
            after, memory = process.cpu_times(), process.memory_info().rss
            cpu = after.user + after.system - before.user - before.system
            print(
                f"resident {memory / 2**20:.1f} MB, {1000 * cpu / arguments.seconds:.1f} ms of processor time per second, "
                f"{process.num_threads()} threads, {process.num_fds()} descriptors"
            )
        finally:
            worker.terminate()
            worker.wait()


if __name__ == "__main__":
    main()
