"""One example of each statement that is generated, in `generated.sql` (`make data` writes it)."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import wrap

from tracer.lineage import Payloads
from tracer.records import Kind
from tracer.storage.postgres import deletion, event_rows, leases, projection, projection_rows
from tracer.storage.postgres.lists import FAILED_RECORDS, list_of_runs, page_query
from tracer.storage.postgres.rollups import COMPUTED_GROUPS
from tracer.storage.postgres.tree import rows_query
from tracer.store import RunFilter

PAGE = Path(__file__).with_name("generated.sql")

WIDTH = 100

EXAMPLES = {
    "event_rows.LOCK_RUNS: events of runs arrive": event_rows.LOCK_RUNS,
    "event_rows.MERGE: events of tool calls arrive": event_rows.MERGE[(Kind.TOOL_CALL,), False],
    "projection_rows.UPDATE_RUNS: runs are projected": projection_rows.UPDATE_RUNS,
    "projection_rows.replacing: steps of projected runs": projection_rows.replacing(Kind.STEP),
    "projection_rows.removing: steps of projected runs": projection_rows.removing(Kind.STEP)[0],
    "projection.FIND_PENDING: a tool call is read": projection.FIND_PENDING[Kind.TOOL_CALL],
    "leases.MARKS: recorders are dead": leases.MARKS[leases.IS_DEAD],
    "leases.RAISE: steps of these recorders": leases.RAISE[Kind.STEP],
    "lists.page_query: runs of a session that called a tool": page_query(
        "*", list_of_runs(RunFilter(session="s-1", tool="measure"), 1, None), is_spread=False
    ),
    "lists.FAILED_RECORDS: the run list shows failures": FAILED_RECORDS,
    "tree.rows_query: steps of a run": rows_query(Kind.STEP, Payloads.PREVIEW, "true"),
    "rollups.COMPUTED_GROUPS: calls of runs by tool and hour": COMPUTED_GROUPS,
    "deletion.DELETE_ROWS: blocks of deleted runs": next(
        each for each in deletion.DELETE_ROWS if "FROM otel_block" in each
    ),
    "deletion.COUNT_REMAINING: rows of deleted runs": deletion.COUNT_REMAINING,
}


def page() -> str:
    """Return the text of `generated.sql`."""
    return "\n".join(f"-- {name}\n{_wrapped(sql)};\n" for name, sql in EXAMPLES.items())


def _wrapped(statement: str) -> str:
    """Return a statement with at most `WIDTH` characters in a line, if possible."""
    lines: list[str] = []
    for line in statement.strip("\n").splitlines():
        text = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        for part in text.split(", ") if len(line) > WIDTH else [text]:
            if lines and lines[-1].endswith(",") and len(f"{lines[-1]} {part},") <= WIDTH:
                lines[-1] += f" {part},"
            else:
                lines.append(f"{indent}{part},")
                indent = f"{line[: len(line) - len(line.lstrip())]}    "
        lines[-1] = lines[-1].removesuffix(",")
    return "\n".join(each for line in lines for each in _at_words(line))


def _at_words(line: str) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return wrap(
        line.strip(),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
