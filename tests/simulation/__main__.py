"""`python -m tests.simulation FIRST+COUNT` prints seeds that fail; `python -m tests.simulation SEED` prints a history;
`python -m tests.simulation hints` writes by which seeds known mistakes are found."""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.simulation.history import simulate
from tests.simulation.themes import plan_of
from tests.simulation.variants import write_hints


def main(arguments: list[str]) -> int:
    """Run what the arguments name; 1 if something failed."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    if arguments == ["hints"]:
        write_hints()
        return 0
    first, many, count = arguments[0].partition("+")
    if not many:
        verdict = simulate(int(first))
        print(*verdict.lines, sep="\n")
        print(f"seed {verdict.seed}: {verdict.violation or 'all is well'}")
        return int(verdict.violation is not None)
    began, cpu, runs = time.monotonic(), time.process_time(), 0
    found: Counter[tuple[str, str]] = Counter()
    for seed in range(int(first), int(first) + int(count)):
        verdict = simulate(seed)
        runs += verdict.runs
        if verdict.violation is not None:
            name = plan_of(seed).theme.name
            found[name, verdict.violation.promise.name] += 1
            print(f"seed {seed} ({name}): {verdict.violation}", flush=True)
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    for (theme, promise), times in sorted(found.items()):
        print(f"{times:6} {theme:10} {promise}")
    failed = sum(found.values())
    print(f"{failed} of {count} failed; {runs} runs of handlers; {int(count) * 60 / cpu:.0f} histories a minute of")
    print(f"processor time, {int(count) * 60 / wall:.0f} a minute by the wall")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
