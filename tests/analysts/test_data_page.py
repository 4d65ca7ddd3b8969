"""The data dictionary is that of the database, and leaves nothing unexplained."""

from __future__ import annotations

import psycopg

from tests.analysts.data_page import COLUMNS, PAGE, RELATIONS, data_page
from tracer.storage.analyst_views import ANALYST_VIEWS


def test_the_data_dictionary_is_that_of_the_database(database_url: str) -> None:
    assert data_page(database_url) == PAGE.read_text(encoding="utf-8"), "run `make data`"


def test_every_view_and_every_column_of_it_is_explained(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        views = connection.execute(RELATIONS, ["trace", "v"]).fetchall()
        columns = [each for view in views for each in connection.execute(COLUMNS, view[:1])]

    assert [view[1] for view in views] == sorted(view.name for view in ANALYST_VIEWS)
    assert [each for each in (*views, *columns) if not each[2]] == []
