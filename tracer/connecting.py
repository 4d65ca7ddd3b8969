"""`tracer.connect`: open a connection to a store.

The address of the store is an argument or an environment variable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, nullcontext
from functools import partial

from pydantic import ValidationError

from tracer.client import DisabledTracing, OpenWriter, Tracing
from tracer.errors import ConfigurationError
from tracer.recorder import no_spool, spool_for
from tracer.records import LeaseTerms
from tracer.redaction import Redaction
from tracer.settings import LOCAL_SERVER, MEMORY, Settings, read_settings
from tracer.store import TraceWriter


def connect(
    url: str | None = None, *, api_key: str | None = None, buffered: bool = False
) -> Tracing:
    """Connect to a store and return a `Tracing`, which records to it.

    Close the connection at the end, or use it in a `with` statement.

    If the store does not answer, the program continues. Events wait in the spool, a file under
    `TRACER_HOME`. When the store answers again, this process or the next one sends them. If
    `TRACER_DISABLED` is set, the connection records nothing. If `TRACER_URL` is `memory:`, all
    connections of the process record in memory, whatever their argument (`tracer.testing`).

    Args:
        url: The address of a Tracer server (`http://…`, `https://…`) or of its database
            (`postgresql://…`). The default is `TRACER_URL`, else `TRACER_DATABASE_URL`, else the
            server on this machine.
        api_key: The API key for the server. The default is `TRACER_API_KEY`.
        buffered: Whether to record in the background, so that the program never waits for
            recording. The latest events are lost if the process is killed.

    Raises:
        ConfigurationError: The address or an environment variable is invalid.
    """
    settings = read_settings()
    if settings.disabled:
        return DisabledTracing()
    if settings.url == MEMORY:
        return _in_memory(buffered, settings.redaction)
    if url is not None:
        settings = _with_address(settings, url)
    key = api_key or (settings.api_key and settings.api_key.get_secret_value())
    database_url = settings.database_url and settings.database_url.get_secret_value()
    redaction = settings.redaction
    open_writer: OpenWriter
    if settings.url is None and database_url:
        destination = database_url
        has_sessions = settings.direct_database_url is None
        open_writer = partial(
            _postgres_writer, database_url, settings.lease_terms, redaction, has_sessions
        )
    else:
        destination = settings.url or LOCAL_SERVER
        open_writer = partial(_http_writer, destination, key or None, redaction, settings.announce)
    return Tracing(
        open_writer,
        lambda: spool_for(settings.home, destination, api_key=key or None),
        buffered=buffered,
        redaction=redaction,
    )


def _in_memory(buffered: bool, redaction: Redaction) -> Tracing:
    from tracer.storage.memory import PATIENCE_SECONDS, process_memory

    return Tracing(
        lambda: nullcontext(process_memory),
        no_spool,
        buffered=buffered,
        redaction=redaction,
        patience=PATIENCE_SECONDS,
    )


def _with_address(settings: Settings, url: str) -> Settings:
    is_http = url.partition(":")[0] in ("http", "https")
    try:
        # Separate settings, so that only `url` is validated, not the environment.
        parsed = Settings.model_validate({"url" if is_http else "database_url": url})
    except ValidationError:
        # `from None`: the original error would print its context, a password included.
        raise ConfigurationError(
            "The address to connect to is invalid. Write it as http://HOST:PORT or https://HOST, "
            "or for a database as postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        ) from None
    return settings.model_copy(update={"url": parsed.url, "database_url": parsed.database_url})


# Both import their writer when it is needed: each import takes a considerable part of a second.


@asynccontextmanager
async def _http_writer(
    url: str, api_key: str | None, redaction: Redaction, announces: bool
) -> AsyncIterator[TraceWriter]:
    from tracer.storage.http import AnnouncingWriter, HttpWriter

    writer_class = AnnouncingWriter if announces else HttpWriter
    async with aclosing(writer_class(url, api_key, redaction=redaction)) as writer:
        yield writer


@asynccontextmanager
async def _postgres_writer(
    url: str, terms: LeaseTerms, redaction: Redaction, has_sessions: bool
) -> AsyncIterator[TraceWriter]:
    try:
        from tracer.storage.postgres import ProjectPool, WriterOptions, open_pool, postgres_writer
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Recording into a database needs the package {error.name!r}, which is not installed. "
            "Run pip install 'tracer-lineage[server]', or set TRACER_URL to record to a server."
        ) from error

    async with open_pool(url, has_sessions=has_sessions, is_quiet=True) as pool:
        options = WriterOptions(terms=terms, redaction=redaction)
        yield postgres_writer(ProjectPool(pool), options).for_recorder()
