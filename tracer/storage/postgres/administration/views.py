"""The views of the schema `trace`, which people who query Postgres may rely on.

`views.sql` creates them; `scripts/views.py` generates that file from the definitions of fields. An
upgrade of the schema drops them first and creates them again at its end, so that no migration has
to know them. A change of the views alone needs a migration too, which may be empty.
"""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from tracer.errors import ConfigurationError
from tracer.storage.postgres.connection.row_security import VIEWS_SCHEMA

VIEWS_FILE = Path(__file__).with_name("views.sql")


def drop_views(connection: Connection) -> list[str]:
    """Drop the views, and return statements that restore the rights that were granted on them.

    Args:
        connection: As the owner of the views, if there are any, in a transaction.

    Raises:
        ConfigurationError: Other objects depend on the views. The message names them.
    """
    grants = list(connection.scalars(text(_GRANTS), {"schema": VIEWS_SCHEMA}))
    names = re.findall(r"^CREATE VIEW (\S+)", VIEWS_FILE.read_text("utf-8"), re.MULTILINE)
    try:
        connection.execute(text(f"DROP VIEW IF EXISTS {', '.join(names)}"))
        connection.execute(text(f"DROP FUNCTION IF EXISTS {VIEWS_SCHEMA}.lineage_of(uuid)"))
    except DBAPIError as error:
        if not isinstance(error.orig, psycopg.errors.DependentObjectsStillExist):
            raise
        detail = "; ".join((error.orig.diag.message_detail or "").splitlines())
        raise ConfigurationError(
            f"The upgrade replaces the views of the schema {VIEWS_SCHEMA}, and other objects "
            f"depend on them: {detail}. Drop these objects, upgrade with `tracer migrate`, and "
            "create them again. Nothing was changed."
        ) from error
    return grants


def create_views(connection: Connection, grants: list[str]) -> None:
    """Create the views with their comments, and grant the rights that `drop_views` returned.

    Args:
        connection: As the owner of the tables, which exist, in a transaction.
        grants: Statements to execute afterwards.
    """
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    driver.execute(VIEWS_FILE.read_bytes())  # SQLAlchemy sends one statement at a time
    for grant in grants:
        connection.execute(text(grant))


_GRANTS = """
SELECT format(
    'GRANT %s ON %s TO %s%s', privilege_type, view.oid::regclass,
    CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
    CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END
)
FROM pg_class AS view, aclexplode(view.relacl)
WHERE view.relnamespace = to_regnamespace(:schema) AND view.relkind = 'v' AND grantee <> relowner"""
