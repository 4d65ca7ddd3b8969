"""Load the application and the model that the settings name, and open their launcher."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext

from tracer.errors import ConfigurationError
from tracer.logs import get_logger
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import spool_for
from tracer.records.sessions import SessionStates
from tracer.runtime.application import Application, Surroundings
from tracer.runtime.chat_model import ChatModel
from tracer.runtime.launcher import RunLauncher, RunReader
from tracer.settings import Settings
from tracer.storage.http.writer import HttpWriter

log = get_logger(__name__)


@asynccontextmanager
async def with_model_of(settings: Settings, application: Application) -> AsyncIterator[Application]:
    """Yield the application with its own model, or with the model that `TRACER_MODEL` names.

    Raises:
        ConfigurationError: The application has no model.
    """
    async with AsyncExitStack() as stack:
        configured: ChatModel | None = None
        if settings.model is not None and application.model is not None:
            log.warning(
                "tracer_model_ignored",
                application=application.name,
                reason="the application names its own model",
            )
        elif settings.model is not None:
            configured = await stack.enter_async_context(configured_model(settings.model))
        yield application.with_model(configured)


@asynccontextmanager
async def application_launcher(
    application: Application,
    surroundings: Surroundings,
    recorder: Recorder,
    reader: RunReader,
    sessions: SessionStates | None = None,
) -> AsyncIterator[RunLauncher]:
    """Open the resources of an application that has a model, and yield its launcher.

    Args:
        application: The application; see `with_model_of`.
        surroundings: The environment of the resources.
        recorder: Records the runs. It must be open.
        reader: Reads requests to cancel runs, and the earlier runs of a session.
        sessions: Stores the state of sessions; by default in memory.

    Raises:
        Exception: The resources cannot be opened.
    """
    resources = application.resources
    async with (
        nullcontext() if resources is None else resources(surroundings),
        RunLauncher(application, recorder, reader, sessions=sessions) as launcher,
    ):
        yield launcher


@asynccontextmanager
async def launcher_over_http(
    settings: Settings, url: str, application: Application
) -> AsyncIterator[RunLauncher]:
    """Yield a launcher that records to a server over HTTP. Session state is in memory only.

    Args:
        settings: The server's key, the model, the home of the recorder's spool, and the database
            that the application's own tools may use.
        url: The address of the server.
        application: The application to run.
    """
    key, database_url = (
        None if secret is None else secret.get_secret_value()
        for secret in (settings.api_key, settings.database_url)
    )
    redaction = settings.redaction
    async with (
        with_model_of(settings, application) as application,
        aclosing(HttpWriter(url, key, redaction=redaction)) as writer,
        Recorder(
            writer, spool_for(settings.home, url, api_key=key), redaction=redaction
        ) as recorder,
        application_launcher(
            application, Surroundings(database_url, url, key), recorder, writer
        ) as launcher,
    ):
        yield launcher


@asynccontextmanager
async def configured_model(name: str) -> AsyncIterator[ChatModel]:
    """Yield the model that `TRACER_MODEL` names as `openai:NAME`.

    Raises:
        ConfigurationError: The model's API key is not set.
    """
    # Here, since it takes most of a second, which other commands need not wait for.
    from tracer.runtime.openai_model import OpenAIModel

    async with aclosing(OpenAIModel(name.partition(":")[2])) as model:
        yield model


def load_application(settings: Settings) -> Application:
    """Return the application that `TRACER_APP` names as `module:name`.

    Raises:
        ConfigurationError: `TRACER_APP` is not set, the module or name does not exist, or it is no
            `Application`.
    """
    if settings.app is None:
        raise ConfigurationError(
            "TRACER_APP names no application. Set it to MODULE:NAME, for example to "
            "health:application, the demonstration."
        )
    if "" not in sys.path:
        # As `python -m` does: finds modules in the directory that the command was started in.
        sys.path.insert(0, "")
    try:
        application = named(settings.app)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"TRACER_APP names {settings.app!r}, which cannot be loaded: {error}. "
            "Write it as module:name of a module that can be imported from here."
        ) from error
    if not isinstance(application, Application):
        raise ConfigurationError(
            f"TRACER_APP names {settings.app!r}, which is a {type(application).__name__}: "
            "it must be a tracer.Application."
        )
    return application


def named(path: str) -> object:
    """Import the object that `module:name` names, and return it."""
    module, _, name = path.partition(":")
    return operator.attrgetter(name)(importlib.import_module(module))
