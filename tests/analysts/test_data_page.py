"""The data dictionary page matches the database, and each view and column has a comment."""

from __future__ import annotations

import psycopg

from scripts.views import updated_views
from tests.analysts.data_page import COLUMNS, PAGE, RELATIONS, data_page
from tracer.storage.postgres.migrate import VIEWS_FILE


def test_data_dictionary_page_matches_the_database(database_url: str) -> None:
    assert data_page(database_url) == PAGE.read_text(encoding="utf-8"), "run `make data`"


def test_every_view_and_every_column_has_a_comment(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        views = connection.execute(RELATIONS, ["trace", "v"]).fetchall()
        columns = [each for view in views for each in connection.execute(COLUMNS, view[:1])]

    assert len(views) == 14
    assert [each for each in (*views, *columns) if not each[2]] == []


def test_views_sql_matches_the_field_definitions() -> None:
    views = VIEWS_FILE.read_text(encoding="utf-8")
    assert updated_views(views) == views, "run `make data`"


def test_new_field_is_added_to_its_view_with_a_comment() -> None:
    views = VIEWS_FILE.read_text(encoding="utf-8")
    column = "    call.still_running,\n"
    start = views.index("COMMENT ON COLUMN trace.tool_calls.still_running IS ")
    text = views[start : views.index("\n", start) + 1]
    older = views.replace(column, "", 1).replace(text, "", 1)
    added = updated_views(older)
    assert ",\n    call.still_running\nFROM act_tool_info AS call\n" in added
    assert text in added
    assert len(added) == len(views)
