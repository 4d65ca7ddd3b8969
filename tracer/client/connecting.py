"""`tracer.connect`: a connection by an address or by the environment's settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial

from pydantic import ValidationError

from tracer.client.disabled import DisabledTracing
from tracer.client.otel_context import carry_work_into_threads
from tracer.client.recorder_thread import OpenWriter
from tracer.client.tracing import Tracing
from tracer.errors import ConfigurationError
from tracer.recorder.spool import spool_for
from tracer.records.leases import LeaseTerms
from tracer.redaction import Redaction
from tracer.settings import Settings, read_settings
from tracer.store import TraceWriter

LOCAL_SERVER = "http://127.0.0.1:8420"
"""Where `tracer serve` listens unless told otherwise."""


def connect(
    url: str | None = None, *, api_key: str | None = None, buffered: bool = False
) -> Tracing:
    """Connect to a store, and return what starts work on it. Close it, or use it with `with`.

    A store that is away stops nobody: what is recorded waits in the spool under `TRACER_HOME`, and
    is brought to the store when that answers, by this process or the next. If `TRACER_DISABLED` is
    set, the connection records nothing.

    Args:
        url: A tracer server (`http://…`, `https://…`), or the database itself (`postgresql://…`).
            Unless given, `TRACER_URL`, else `TRACER_DATABASE_URL`, else the server on this machine.
        api_key: What the server knows us by; unless given, `TRACER_API_KEY`.
        buffered: Whether to record in the background, so that nothing waits for it. What was
            recorded in the last moments is lost when the process is killed.

    Raises:
        ConfigurationError: The address, or a variable of the environment, is wrong.
    """
    settings = read_settings()
    if settings.disabled:
        return DisabledTracing()
    if url is not None:
        settings = _given(settings, url)
    key = api_key or (settings.api_key and settings.api_key.get_secret_value())
    database_url = settings.database_url and settings.database_url.get_secret_value()
    redaction = settings.redaction
    open_writer: OpenWriter
    if settings.url is None and database_url:
        place = database_url
        has_sessions = settings.direct_database_url is None
        open_writer = partial(
            _postgres_writer, database_url, settings.lease_terms, redaction, has_sessions
        )
    else:
        place = settings.url or LOCAL_SERVER
        open_writer = partial(_http_writer, place, key or None, redaction)
    carry_work_into_threads()
    return Tracing(
        open_writer,
        lambda: spool_for(settings.home, place, api_key=key or None),
        buffered=buffered,
        redaction=redaction,
    )


def _given(settings: Settings, url: str) -> Settings:
    """Return the settings with the address that was given in place of theirs."""
    is_http = url.partition(":")[0] in ("http", "https")
    try:
        # Of its own, so that only what was given is looked at, not the environment.
        given = Settings.model_validate({"url" if is_http else "database_url": url})
    except ValidationError:
        # `from None`: the original error would print its context, a password included.
        raise ConfigurationError(
            "The address to connect to can't be used: write it as http://HOST:PORT or "
            "https://HOST, or for a database as postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        ) from None
    return settings.model_copy(update={"url": given.url, "database_url": given.database_url})


# Imported when they are wanted: each takes a good part of a second.


@asynccontextmanager
async def _http_writer(
    url: str, api_key: str | None, redaction: Redaction
) -> AsyncIterator[TraceWriter]:
    from tracer.storage.http.writer import HttpWriter

    async with aclosing(HttpWriter(url, api_key, redaction=redaction)) as writer:
        yield writer


@asynccontextmanager
async def _postgres_writer(
    url: str, terms: LeaseTerms, redaction: Redaction, has_sessions: bool
) -> AsyncIterator[TraceWriter]:
    try:
        from tracer.storage.postgres.connection.pool import open_pool
        from tracer.storage.postgres.connection.project_session import ProjectPool
        from tracer.storage.postgres.writer import PostgresWriter
        from tracer.storage.write_redaction import Admission
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Recording into a database needs the package {error.name!r}: "
            "pip install 'tracer-lineage[server]'. Recording to a server does not: set TRACER_URL."
        ) from error

    async with open_pool(url, has_sessions=has_sessions, is_quiet=True) as pool:
        admission = Admission(redaction)
        writer = PostgresWriter(ProjectPool(pool), terms=terms, admission=admission)
        yield writer.for_recorder()
