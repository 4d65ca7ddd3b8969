"""Who is an analyst of which project: roles of the database, let in and sent away.

As the user that owns the tables, who has to be allowed to make roles.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import errors, sql

from tracer.errors import BadRequest, ConfigurationError
from tracer.storage.analyst_role import READER_ROLE
from tracer.storage.citus import is_spread_by
from tracer.storage.engine import Pool, PoolConnection, borrowed, open_pool, store_errors
from tracer.storage.projects import project_id_of

CONNECTIONS = 10
"""How many an analyst may have at once."""

LONGEST_NAME = 63
"""How many bytes of a role's name Postgres keeps."""


@dataclass(frozen=True)
class Analyst:
    """A role that sees one project."""

    role: str
    project: str
    was_made: bool
    """Whether the role was made for this, and goes with it."""


@dataclass(frozen=True)
class NewAnalyst(Analyst):
    """An analyst that has just been let in."""

    password: str | None
    """What a role that was made logs in with: it is stored nowhere."""


class Analysts:
    """The analysts of all projects."""

    def __init__(self, pool: Pool) -> None:
        """Work as the tables' owner, by its connections."""
        self._pool = pool

    async def add(self, role: str, project: str) -> NewAnalyst:
        """Let a role see one project, and nothing else; it is made where there is none of its name.

        Args:
            role: The role's name.
            project: The project's name.

        Raises:
            BadRequest: The role sees a project already, can't be made by that name, can't log in,
                or could become another one, or do more than log in: it could see other projects.
            ConfigurationError: There is no such project, or the database's user may not make roles.
            StoreUnavailable: The database does not answer.
        """
        if len(role.encode()) > LONGEST_NAME:  # Postgres would cut it
            raise BadRequest(f"A role's name has {LONGEST_NAME} bytes at most.")
        project_id = await project_id_of(self._pool, project)
        async with self._working(role) as connection:
            if await is_spread_by(connection):
                raise ConfigurationError(
                    "On Citus nobody can be an analyst: it takes no policy that asks whose project "
                    "it is. Give analysts a copy of the data on one Postgres."
                )
            if await _one(connection, "SELECT 1 FROM analyst WHERE role_name = %s", role):
                raise BadRequest(f"{role!r} is an analyst already: remove it first.")
            password = None
            gap = await _one(connection, _GAP, role)
            if gap is None:
                password = secrets.token_urlsafe(24)
                await _make(connection, role, password)
            elif gap[0]:
                raise BadRequest(
                    f"The role {role!r} can't log in, may do more, or is a member of other roles: "
                    "it could see other projects. Give another one, or a name that is not taken."
                )
            grant = "GRANT {} TO {} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE"
            await _on_role(connection, grant, READER_ROLE, role)
            await connection.execute(
                "INSERT INTO analyst VALUES (%s, %s, %s)", [role, project_id, password is not None]
            )
        return NewAnalyst(role, project, password is not None, password)

    async def remove(self, role: str) -> Analyst:
        """Let a role see nothing any more, open sessions included; drop it if it was made here.

        Raises:
            BadRequest: It is no analyst, or owns something, so that it can't be dropped.
            ConfigurationError: The database's user may not do that.
            StoreUnavailable: The database does not answer.
        """
        async with self._working(role) as connection:
            found = await _one(connection, _REMOVE, role)
            if found is None:
                raise BadRequest(f"{role!r} is no analyst.")
            removed = Analyst(*found)
            if await _one(connection, _ROLE, role):  # a backup has the row alone
                await _on_role(connection, "REVOKE {} FROM {}", READER_ROLE, role)
                if removed.was_made:
                    await _on_role(connection, "DROP ROLE {}", role)
        return removed

    async def list_analysts(self) -> list[Analyst]:
        """Return the analysts, by project and name."""
        with store_errors():
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute(_LIST)
                return [Analyst(*row) for row in await cursor.fetchall()]

    @asynccontextmanager
    async def _working(self, role: str) -> AsyncIterator[PoolConnection]:
        with store_errors(), _told_in_a_sentence(role):
            async with borrowed(self._pool) as connection, connection.transaction():
                yield connection


@asynccontextmanager
async def analysts_of(database_url: str) -> AsyncIterator[Analysts]:
    """Give the analysts of a migrated Postgres."""
    async with open_pool(database_url) as pool:
        yield Analysts(pool)


async def _make(connection: PoolConnection, role: str, password: str) -> None:
    # What the server is told, and may log, is the verifier, not the password.
    verifier = connection.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    )
    rights = f"LOGIN CONNECTION LIMIT {CONNECTIONS} PASSWORD {{}}"
    await connection.execute(
        sql.SQL("CREATE ROLE {} " + rights).format(
            sql.Identifier(role), sql.Literal(verifier.decode())
        )
    )


async def _on_role(connection: PoolConnection, statement: str, *roles: str) -> None:
    await connection.execute(sql.SQL(statement).format(*map(sql.Identifier, roles)))


async def _one(connection: PoolConnection, query: str, name: str) -> tuple[Any, ...] | None:
    cursor = await connection.execute(query, [name])
    return await cursor.fetchone()


@contextmanager
def _told_in_a_sentence(role: str) -> Iterator[None]:
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            "The database's user may not make or change roles. Let a superuser: "
            f"ALTER ROLE the_user CREATEROLE; GRANT {READER_ROLE} TO the_user WITH ADMIN OPTION"
        ) from error
    except errors.UndefinedObject as error:
        raise ConfigurationError(
            f"There is no role {READER_ROLE}. Let a superuser: CREATE ROLE {READER_ROLE} NOLOGIN; "
            "then run `tracer migrate`."
        ) from error
    except (errors.ReservedName, errors.InvalidName, errors.SyntaxError) as error:
        raise BadRequest(f"No role can be called {role!r}.") from error
    except errors.DependentObjectsStillExist as error:
        raise BadRequest(
            f"The role {role!r} owns something in a database: give that to another role first "
            "(REASSIGN OWNED, DROP OWNED)."
        ) from error


# What a role could become, or may do beside logging in, would be a gap in the wall; and what does
# not log in may be the program's own role, which would see that project from every other.
_GAP = f"""
SELECT NOT role.rolcanlogin OR role.rolsuper OR role.rolbypassrls OR role.rolreplication
    OR role.rolcreaterole
    OR EXISTS (
        SELECT FROM pg_auth_members AS membership
        WHERE membership.member = role.oid AND membership.roleid::regrole::text <> '{READER_ROLE}'
    )
    OR EXISTS (SELECT FROM pg_class WHERE oid = 'run'::regclass AND relowner = role.oid)
FROM pg_roles AS role WHERE role.rolname = %s"""

_ROLE = "SELECT 1 FROM pg_roles WHERE rolname = %s"

_REMOVE = """
DELETE FROM analyst USING project
WHERE analyst.project_id = project.project_id AND role_name = %s
RETURNING role_name, project.name, was_made"""

_LIST = """
SELECT role_name, project.name, was_made FROM analyst JOIN project USING (project_id)
ORDER BY project.name, role_name"""
