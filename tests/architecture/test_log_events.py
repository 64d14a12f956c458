"""Each record of aioqueue's says as `event` what has happened, and the documentation lists the events with their fields."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "logging.md"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
MAKERS = {"event", "job_event", "slot.event"}
JOB = "the job's"
RESERVED = {"name", "msg", "args", "message", "asctime", "level", "time", "logger", "exception", "stack"}


def log_calls(tree: ast.AST) -> list[ast.Call]:
    """The calls that make a record: `logger.warning(...)`, `(logger.debug if … else logger.warning)(...)`."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and re.search(r"(logger|getLogger\([^)]*\))\.(\w+)( if |$)", ast.unparse(node.func))
        and (not isinstance(node.func, ast.Attribute) or node.func.attr in LEVELS)
    ]


def made_by(node: ast.expr | None) -> ast.Call | None:
    """The call that makes what a record carries."""
    return node if isinstance(node, ast.Call) and ast.unparse(node.func) in MAKERS else None


@cache
def events() -> tuple[dict[str, set[str]], list[str]]:
    """Fields by event, and the calls without an event."""
    found: dict[str, set[str]] = defaultdict(set)
    missing: list[str] = []
    for path in sorted((ROOT / "aioqueue").rglob("*.py")):
        text = path.read_text()
        if "logger" not in text and "getLogger" not in text:
            continue
        tree = ast.parse(text)
        named = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and made_by(node.value)]
        for call in log_calls(tree):
            given = next((keyword.value for keyword in call.keywords if keyword.arg == "extra"), None)
            if isinstance(given, ast.Name):  # what was put there last
                before = [each for each in named if ast.unparse(each.targets[0]) == given.id and each.lineno < call.lineno]
                given = max(before, key=lambda each: each.lineno).value if before else None
            made = made_by(given)
            if made is None or not isinstance(made.args[0], ast.Constant):
                missing.append(f"{path.relative_to(ROOT)}:{call.lineno}")
                continue
            fields = {keyword.arg or JOB for keyword in made.keywords}
            found[str(made.args[0].value)] |= fields | (set() if ast.unparse(made.func) == "event" else {JOB})
    return found, missing


def documented() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| [^|]+ \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len({name for name, _ in rows})
    return {name: set(re.findall(r"`(\w+)`", fields)) | ({JOB} if JOB in fields else set()) for name, fields in rows}


def test_each_record_has_an_event() -> None:
    found, missing = events()
    assert len(found) > 50
    assert missing == []


def test_the_documentation_lists_the_events_and_their_fields() -> None:
    assert documented() == events()[0]


def test_no_field_has_a_name_of_loggings_own() -> None:
    assert {name for fields in events()[0].values() for name in fields} & RESERVED == set()
