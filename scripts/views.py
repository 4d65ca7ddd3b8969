"""Bring `views.sql` of the schema `trace` up to date with the definitions of fields: `make data`.

A column that is a field of the view's table has the field's name, and its comment is the field's
docstring. New fields of a record are added at the end of its views. Everything else in the file is
edited by hand.
"""

from __future__ import annotations

import re

from tracer.storage.postgres import METADATA
from tracer.storage.postgres.migrate import VIEWS_FILE

OF_RECORDS = {"runs", "plans", "sub_plans", "steps", "think_acts", "tool_calls"}
"""The views that show the fields of records."""

NOT_SHOWN = {
    *("revision", "digest", "handle_key", "deleted_at", "swept_at", "span_bytes", "settle_at"),
    *("projected", "projection_version", "projection_error", "next_projection_at"),
    *("summed_revision", "is_summed", "linked_revision", "linked_session_id", "is_linked"),
    *("is_bare", "parts_revision", "changed_at"),
    *("open_at", "left_open_at"),
    *("span_count", "span_records"),
}
"""Fields of records that belong to the program."""

OF_ALL = {"project_id", "root_plan_id"}
"""Fields that have the same comment in all views: that of the run."""

VIEW = re.compile(
    r"CREATE VIEW (?P<name>\S+) .*\nSELECT\n(?P<columns>(?: {4}.*\n)+)"
    r"FROM (?P<table>\w+)(?: AS (?P<alias>\w+))?(?P<source>[^;]*;\n)"
    r"(?P<about>COMMENT ON VIEW .*\n)(?P<comments>(?:COMMENT ON COLUMN .*\n)+)"
)
COLUMN = re.compile(r"^ {4}(.*?)(?: AS (\w+))?,?$", re.MULTILINE)
COMMENT = re.compile(r"^COMMENT ON COLUMN \S+\.(\w+) IS (.*);$", re.MULTILINE)


def updated_views(views: str) -> str:
    """Return the content of the file with the fields and comments of today.

    Raises:
        KeyError: A column that is no field has no comment.
    """
    return VIEW.sub(_updated_view, views)


def _updated_view(view: re.Match[str]) -> str:
    alias = view["alias"] or view["table"]
    columns = view["columns"]
    if view["name"].partition(".")[2] in OF_RECORDS:
        shown = set(re.findall(rf"\b{alias}\.(\w+)", columns)) | NOT_SHOWN
        table = METADATA.tables[view["table"]]
        new = [column.name for column in table.columns if column.name not in shown]
        columns = columns[:-1] + "".join(f",\n    {alias}.{name}" for name in new) + "\n"
    comments = dict(COMMENT.findall(view["comments"]))
    tables = {"run": "run", alias: view["table"]}
    lines = []
    for expression, name in COLUMN.findall(columns):
        source, _, field = expression.rpartition(".")
        if not name and source in tables:
            table = METADATA.tables["run" if field in OF_ALL else tables[source]]
            comments[field] = _quoted(table.columns[field].comment)
        column = name or field
        lines.append(f"COMMENT ON COLUMN {view['name']}.{column} IS {comments[column]};\n")
    text = view[0].replace(view["comments"], "".join(lines))
    return text.replace(view["columns"], columns)


def _quoted(comment: str | None) -> str:
    assert comment is not None, "the field has no docstring"
    return "'" + " ".join(comment.split()).replace("'", "''") + "'"


if __name__ == "__main__":
    VIEWS_FILE.write_text(updated_views(VIEWS_FILE.read_text("utf-8")), encoding="utf-8")
