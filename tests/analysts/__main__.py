"""Write `docs/reference/data.md` and the answers in `docs/guides/queries.md` (`make data`)."""

from __future__ import annotations

import asyncio
import sys

from tests.analysts.data_page import PAGE as DATA_PAGE
from tests.analysts.data_page import data_page
from tests.analysts.query_page import PAGE as QUERY_PAGE
from tests.analysts.query_page import answered_page
from tests.databases import create_template, find_database, fresh_database

if __name__ == "__main__":
    with find_database().start() as server, fresh_database(server, create_template(server)) as url:
        DATA_PAGE.write_text(data_page(url), encoding="utf-8")
        QUERY_PAGE.write_text(asyncio.run(answered_page(url)), encoding="utf-8")
    sys.stdout.write(f"{DATA_PAGE}\n{QUERY_PAGE}\n")
