"""Programs that send OpenTelemetry, and the settings that they need, for `tracer doctor`.

`docs/get-started/coding-agents.md` explains these settings. To add a program, add it to `EMITTERS`.
Nothing here connects to anything.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

SIGNALS = ("traces", "logs")
_GENERAL = "OTEL_EXPORTER_OTLP_"

GRPC, HTTP = "grpc", "http"
_PROTOCOLS = {
    "grpc": GRPC,
    **dict.fromkeys(("http/protobuf", "http/json", "http", "binary", "json"), HTTP),
}
"""The protocol by its name in settings."""

GRPC_PORT = 4317
"""The port of OTLP over gRPC, of Tracer and of Collectors."""
COLLECTOR_PORT = 4318
"""The port to which exporters send over HTTP if no endpoint is set."""


class Setting(NamedTuple):
    """The value of an environment variable, or of a key in a settings file."""

    value: str
    source: str
    """Where it is set: "the environment", or a file."""


Found = Mapping[str, Setting]
"""The settings of a program. The name of a key in a file contains dots."""


class Problem(NamedTuple):
    """A wrong setting, and how to correct it."""

    message: str
    what_to_do: str


class Unreadable(Exception):
    """A settings file is not valid. The message contains the file and the reason."""


@dataclass(frozen=True)
class Endpoint:
    """Where a program sends one signal."""

    signal: str
    url: str
    """Over HTTP, with the path of the signal."""
    protocol: str
    """`GRPC`, `HTTP`, or another text that is set and is no protocol."""
    headers: tuple[tuple[str, str], ...]
    """Their names are in lower case."""
    name: str = field(default="TRACER_URL", compare=False)
    """The setting that determines the address."""
    source: str = field(default="the environment", compare=False)
    """Where it is set; empty: nowhere, and this is the default address."""
    is_general: bool = field(default=False, compare=False)
    """Whether this setting is the address of all signals, without a path."""

    def __str__(self) -> str:
        where = f"in {self.source}" if self.source else "is not set"
        return f"{self.url} ({self.name} {where})"

    @property
    def address(self) -> str:
        """The host and the port."""
        return address_of(self.url)

    @property
    def key(self) -> str | None:
        """The key that the program sends; None if it sends none."""
        # Some programs send %20 as it is written, and the server accepts it.
        header = dict(self.headers).get("authorization", "").replace("%20", " ", 1)
        kind, _, key = header.partition(" ")
        return key.strip() if kind.lower() == "bearer" and key.strip() else None

    def fix(self, server: str) -> str:
        """Return how to send to a server."""
        path = "" if self.is_general else f"/v1/{self.signal}"
        return f"Set {self.name} to {server}{path}. {_KEY}"


_KEY = "If the server requires a key, send the header `Authorization: Bearer KEY`."


@dataclass(frozen=True)
class Need:
    """A setting that a program needs."""

    name: str
    without: str
    """The effect if it is missing."""
    value: str = "1"
    """The recommended value. `URL` is the server's address."""
    others: tuple[str, ...] = ()
    """Other accepted values. If `value` contains `URL`, any value is accepted."""
    alternative: str = ""
    """Another setting that has the same effect."""
    is_content: bool = False
    """Whether runs appear without it, and lack texts."""

    def is_met(self, found: Found) -> bool:
        """Return whether the setting has an accepted value."""
        own = found.get(self.name) or found.get(self.alternative)
        if own is None or _URL in self.value:
            return own is not None
        return not {self.value, *self.others}.isdisjoint(own.value.lower().split(","))


_URL = "URL"


@dataclass(frozen=True)
class Emitter:
    """A program, and where its settings are."""

    name: str
    program: str
    """The command, by which it is found in PATH; empty: any program."""
    marks: tuple[str, ...]
    """Beginnings of settings that show that the program is set up. Many programs share the
    variables `OTEL_EXPORTER_OTLP_…`, so these count only if the program is installed."""
    endpoints: Callable[[Found], Iterator[Endpoint]]
    """Returns where the program sends."""
    needs: tuple[Need, ...] = ()
    files: tuple[str, ...] = ()
    """Its settings files. Later ones override earlier ones, and the environment. `$NAME/` begins
    with the value of an environment variable."""
    prefix: str = ""
    """The beginning of the keys in these files that are environment variables."""

    def place_of(self, name: str) -> str:
        """Return where a user changes a setting, as a phrase."""
        begin = f"where {self.program} starts"
        if not self.files or ("." not in name and not self.prefix):
            return begin
        place, slash, rest = self.files[0].partition("/")
        file = _DEFAULT_FOLDERS.get(place.removeprefix("$"), place) + slash + rest
        return f"in {file}" if "." in name else f"{begin}, or in {file}"

    def is_set_up(self, found: Found, is_installed: bool) -> bool:
        """Return whether the program is set up to send something."""
        marked = [name for name in found if name.startswith(self.marks)]
        return any(is_installed or not name.startswith(_GENERAL) for name in marked)


def _of_variables(found: Found) -> Iterator[Endpoint]:
    """Yield the endpoints of OpenTelemetry's environment variables."""
    for signal in SIGNALS:
        own = f"{_GENERAL}{signal.upper()}_"

        if not {f"{own}ENDPOINT", f"{_GENERAL}ENDPOINT"} & found.keys() and (
            signal == "logs" or f"{_GENERAL}LOGS_ENDPOINT" in found
        ):
            continue  # the program may send one signal only

        def value(name: str, own: str = own) -> Setting | None:
            return found.get(own + name) or found.get(_GENERAL + name)

        named, header = (each.value if (each := value(name)) else "" for name in _OTHERS)
        protocol = _PROTOCOLS.get(named.lower(), named) or HTTP
        path = f"/v1/{signal}" if protocol == HTTP else ""
        is_general = f"{own}ENDPOINT" not in found
        port = COLLECTOR_PORT if protocol == HTTP else GRPC_PORT
        url, source = value("ENDPOINT") or Setting(f"http://localhost:{port}", "")
        pairs = (each.partition("=") for each in header.split(",") if "=" in each)
        if protocol == GRPC and "://" not in url:
            url = f"http://{url}"
        yield Endpoint(
            signal,
            url.rstrip("/") + path if is_general else url,
            protocol,
            tuple((key.strip().lower(), unquote(text.strip())) for key, _, text in pairs),
            f"{_GENERAL if is_general else own}ENDPOINT",
            source,
            is_general,
        )


_OTHERS = ("PROTOCOL", "HEADERS")


def _of_codex(found: Found) -> Iterator[Endpoint]:
    for signal, table in (("traces", "otel.trace_exporter"), ("logs", "otel.exporter")):
        for kind, protocol in (("otlp-http", HTTP), ("otlp-grpc", GRPC)):
            name = f"{table}.{kind}."
            if (url := found.get(f"{name}endpoint")) is not None:
                begin = f"{name}headers."
                headers = (
                    (key.removeprefix(begin).lower(), each.value)
                    for key, each in found.items()
                    if key.startswith(begin)
                )
                where = (f"{name}endpoint", url.source)
                yield Endpoint(signal, url.value, protocol, tuple(headers), *where)


def _of_gemini(found: Found) -> Iterator[Endpoint]:
    name = "telemetry.otlpEndpoint"
    named = found.get("telemetry.otlpProtocol", Setting(GRPC, "")).value
    protocol = _PROTOCOLS.get(named, named)
    for signal in SIGNALS:
        if (url := found.get(name)) is not None:
            address = url.value.rstrip("/") + (f"/v1/{signal}" if protocol == HTTP else "")
            yield Endpoint(signal, address, protocol, (), name, url.source, is_general=True)


def _content(name: str, without: str) -> Need:
    value, others = ("true", ()) if "." in name else ("1", ("true",))
    return Need(name, without, value, others, is_content=True)


_NOTHING = "it sends nothing"
_NO_SPANS = "it sends no spans"
_NO_LOGS = "it sends no log records"
_NO_PROMPT = "runs have no request and no title"
_NO_CONTENT = "runs have no prompts, arguments and results"

EMITTERS = (
    Emitter(
        "Claude Code",
        "claude",
        marks=("CLAUDE_CODE_ENABLE_TELEMETRY", "CLAUDE_CODE_ENHANCED_TELEMETRY"),
        endpoints=_of_variables,
        files=(
            "$CLAUDE_CONFIG_DIR/settings.json",
            ".claude/settings.json",
            ".claude/settings.local.json",
            "/etc/claude-code/managed-settings.json",
            "/Library/Application Support/ClaudeCode/managed-settings.json",
        ),
        prefix="env.",
        needs=(
            Need("CLAUDE_CODE_ENABLE_TELEMETRY", _NOTHING, others=("true",)),
            Need("CLAUDE_CODE_ENHANCED_TELEMETRY_BETA", _NO_SPANS, others=("true",)),
            Need("OTEL_TRACES_EXPORTER", _NO_SPANS, "otlp"),
            Need("OTEL_LOGS_EXPORTER", _NO_LOGS, "otlp"),
            Need(
                f"{_GENERAL}PROTOCOL",
                _NOTHING,
                "http/protobuf",
                ("http/json", "grpc"),
                alternative=f"{_GENERAL}TRACES_PROTOCOL",
            ),
            _content("OTEL_LOG_USER_PROMPTS", _NO_PROMPT),
            _content("OTEL_LOG_TOOL_DETAILS", "calls have no arguments"),
            _content("OTEL_LOG_TOOL_CONTENT", "calls have no results"),
            _content("OTEL_LOG_ASSISTANT_RESPONSES", "runs have no answers"),
        ),
    ),
    Emitter(
        "Codex CLI",
        "codex",
        marks=("otel.",),
        endpoints=_of_codex,
        files=("$CODEX_HOME/config.toml",),
        needs=(
            Need(
                "otel.trace_exporter.otlp-http.endpoint",
                _NO_SPANS,
                f"{_URL}/v1/traces",
                alternative="otel.trace_exporter.otlp-grpc.endpoint",
            ),
            Need(
                "otel.exporter.otlp-http.endpoint",
                _NO_LOGS,
                f"{_URL}/v1/logs",
                alternative="otel.exporter.otlp-grpc.endpoint",
            ),
            _content("otel.log_user_prompt", _NO_PROMPT),
        ),
    ),
    Emitter(
        "OpenCode",
        "opencode",
        marks=("experimental.openTelemetry", _GENERAL),
        endpoints=_of_variables,
        files=(
            "$XDG_CONFIG_HOME/opencode/opencode.json",
            "$XDG_CONFIG_HOME/opencode/opencode.jsonc",
            "$OPENCODE_CONFIG",
            "opencode.json",
            "opencode.jsonc",
        ),
        needs=(
            Need(f"{_GENERAL}ENDPOINT", _NOTHING, _URL),
            _content("experimental.openTelemetry", f"{_NO_CONTENT}, and no tokens"),
        ),
    ),
    Emitter(
        "Copilot CLI",
        "copilot",
        marks=(_GENERAL,),
        endpoints=_of_variables,
        needs=(
            Need(f"{_GENERAL}ENDPOINT", _NOTHING, _URL),
            _content("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", _NO_CONTENT),
        ),
    ),
    Emitter(
        "Gemini CLI",
        "gemini",
        marks=("telemetry.",),
        endpoints=_of_gemini,
        files=("~/.gemini/settings.json", ".gemini/settings.json"),
        needs=(
            Need("telemetry.enabled", _NOTHING, "true"),
            Need("telemetry.otlpEndpoint", _NOTHING, _URL),
            Need("telemetry.traces", _NO_SPANS, "true"),
            _content("telemetry.logPrompts", _NO_PROMPT),
        ),
    ),
    Emitter("OpenTelemetry SDK", "", marks=(_GENERAL,), endpoints=_of_variables),
)

_OFF = {
    "OTEL_SDK_DISABLED": ("true",),
    "OTEL_TRACES_EXPORTER": ("none", "console"),
    "OTEL_TRACES_SAMPLER": ("always_off", "parentbased_always_off"),
}
"""Values of variables that turn spans off."""

_DEFAULT_FOLDERS = {
    "CLAUDE_CONFIG_DIR": "~/.claude",
    "CODEX_HOME": "~/.codex",
    "XDG_CONFIG_HOME": "~/.config",
}


@dataclass(frozen=True)
class Machine:
    """Where settings are looked for."""

    variables: Mapping[str, str]
    home: Path
    folder: Path
    """The folder in which the program is started."""

    def settings_of(self, emitter: Emitter) -> dict[str, Setting]:
        """Return the settings of a program.

        Raises:
            Unreadable: A settings file is not valid.
        """
        given = {name: value for name, value in self.variables.items() if value}
        found = {name: Setting(value, "the environment") for name, value in given.items()}
        for file in emitter.files:
            path = self._path(file)
            if path.is_file():
                shown = str(path).replace(f"{self.home}/", "~/", 1)
                for name, value in _flattened(_read(path, shown)):
                    found[name.removeprefix(emitter.prefix)] = Setting(value, shown)
        return found

    def _path(self, file: str) -> Path:
        place, slash, rest = file.partition("/")
        if place.startswith("$"):
            place = self.variables.get(place[1:]) or _DEFAULT_FOLDERS.get(place[1:], "")
        path = Path(place + slash + rest)
        return self.home / path.relative_to("~") if path.parts[:1] == ("~",) else self.folder / path


def setting_problems(
    emitter: Emitter, found: Found, server: str
) -> tuple[list[Problem], list[Problem]]:
    """Return the settings of a program that keep runs from appearing, and those that lose content.

    Args:
        emitter: The program.
        found: Its settings.
        server: The address of the Tracer server.
    """
    problems, missing = [], []
    for name, values in _OFF.items():
        if name in found and found[name].value.lower() in values:
            message = f"{name}={found[name].value} in {found[name].source}: {_NO_SPANS}."
            problems.append(Problem(message, f"Remove {name}."))
    for need in emitter.needs:
        if need.is_met(found):
            continue
        own, value = found.get(need.name), need.value.replace(_URL, server)
        if need.is_content:
            missing.append(need)
        elif own is None or own.value.lower() not in _OFF.get(need.name, ()):
            state = "is not set" if own is None else f"is {own.value} in {own.source}"
            message = f"{need.name} {state}: {need.without}."
            problems.append(
                Problem(message, f"Set {need.name} to {value} {emitter.place_of(need.name)}.")
            )
    notes = []
    for place, group in groupby(missing, lambda each: emitter.place_of(each.name)):
        needs = list(group)
        lost = ", ".join(each.without for each in needs)
        listed = ", ".join(f"{each.name}={each.value}" for each in needs)
        fix = f"To send them, set {listed} {place}."
        notes.append(Problem(f"Texts are not sent: {lost}.", fix))
    return problems, notes


def endpoint_problem(endpoint: Endpoint, server: str) -> Problem | None:
    """Return what is wrong with an endpoint, as far as the settings show; None if nothing is.

    Args:
        endpoint: Where a program sends.
        server: The address of the Tracer server, such as `http://127.0.0.1:8420`.
    """
    parts, is_http = urlsplit(endpoint.url), endpoint.protocol == HTTP
    is_server = endpoint.address == address_of(server)
    authorization = dict(endpoint.headers).get("authorization")
    if endpoint.protocol not in (GRPC, HTTP):
        return Problem(f"{endpoint.protocol!r} is no protocol of OTLP.", "Set http/protobuf.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return Problem(f"{endpoint} is no address.", endpoint.fix(server))
    if not is_http and is_server:
        fix = f"Set the protocol to http/protobuf, or the port to {GRPC_PORT}."
        return Problem(f"gRPC is sent to the HTTP port: {endpoint}.", fix)
    if is_http and endpoint.address.endswith(f":{GRPC_PORT}"):
        return Problem(f"HTTP is sent to the gRPC port: {endpoint}.", endpoint.fix(server))
    if is_http and is_server and parts.path != f"/v1/{endpoint.signal}":
        return Problem(f"The path of {endpoint} is wrong.", endpoint.fix(server))
    if authorization is not None and endpoint.key is None:
        return Problem("The header Authorization is not `Bearer KEY`.", _KEY)
    return None


def address_of(url: str) -> str:
    """Return the host and port of a URL. `localhost` counts as 127.0.0.1."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname in ("localhost", "::1") else parts.hostname
    try:
        port = parts.port
    except ValueError:  # no number
        port = None
    return f"{host}:{port or (443 if parts.scheme == 'https' else 80)}"


_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
"""Strings, and what JSON with comments has in addition to JSON."""


def _read(path: Path, shown: str) -> Any:
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        return json.loads(_COMMENT.sub(lambda found: found[1] or "", text))
    except (OSError, ValueError) as error:
        raise Unreadable(f"{shown} cannot be read: {error}.") from None


def _flattened(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of nested tables, by their paths with dots."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flattened(each, f"{name}.{key}" if name else key)
    elif isinstance(value, bool):
        yield name, str(value).lower()
    elif value is not None and not isinstance(value, list):
        yield name, str(value)
