"""`tracer doctor`: find out why a run does not appear."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import orjson
import typer
from rich.console import Console

from tracer.cli.emitters import (
    COLLECTOR_PORT,
    EMITTERS,
    GRPC,
    GRPC_PORT,
    HTTP,
    SIGNALS,
    Emitter,
    Endpoint,
    Machine,
    Unreadable,
    address_of,
    endpoint_problem,
    setting_problems,
)
from tracer.cli.terminal import AsJson, counted, run_command
from tracer.clock import utc_now
from tracer.errors import BadRequest
from tracer.recorder.spool import list_spool_files
from tracer.records import new_id
from tracer.settings import LOCAL_SERVER, Settings
from tracer.storage.http import ANSWER_SECONDS, CONNECT_SECONDS, connection_problem

CLOCK_DIFFERENCE = timedelta(minutes=1)
"""The difference between two clocks from which it is a problem."""

NAME = "tracer doctor"
"""The service, the span and the log record of the test run."""

_PAGE = "See docs/get-started/coding-agents.md."
_LOG = "Look at the server's log."
_RECORD = "Create a key on the server: `tracer keys create NAME --scope record`."


class Status(StrEnum):
    """The result of a check."""

    OK = "ok"
    NOTE = "note"
    """Runs appear, but something is missing."""
    PROBLEM = "problem"
    OFF = "off"
    """A program that is not set up to send anything."""


_STYLES = {Status.OK: "green", Status.NOTE: "yellow", Status.PROBLEM: "red", Status.OFF: "dim"}


@dataclass(frozen=True)
class Finding:
    """The result of one check. Programs read these names with `--json`."""

    check: str
    status: Status
    message: str
    fix: str | None = None
    """What to do."""


@dataclass
class Examination:
    """The checks of one server, and of the programs on one machine."""

    url: str
    key: str | None
    client: httpx2.AsyncClient
    seconds: float
    """How long the test run may take to appear, also through a Collector."""
    report: Callable[[Finding], None]
    """Called with each finding that was not reported before."""
    findings: list[Finding] = field(default_factory=list)
    callers: dict[str | None, dict[str, Any]] = field(default_factory=dict)
    """The project and the scopes of each key. None is a request without a key."""
    sent: dict[tuple[Endpoint, ...], Status] = field(default_factory=dict)
    """The result of sending test data through endpoints."""

    def find(self, check: str, status: Status, message: str, fix: str | None = None) -> None:
        """Report a finding once."""
        finding = Finding(check, status, message, fix)
        if finding not in self.findings:
            self.findings.append(finding)
            self.report(finding)

    async def check_server(self) -> bool:
        """Check the server, its clock and ports, and a key. Return whether the server answers."""
        answer, problem = await self._request("GET", f"{self.url}/readyz")
        content = _json(answer)
        is_tracer = "projectors" in content
        status = 0 if answer is None else answer.status_code
        if status == HTTPStatus.SERVICE_UNAVAILABLE and "code" in content:
            self.find("server", Status.PROBLEM, f"{self.url}: {_reason(answer)}", _LOG)
        elif not is_tracer:
            problem = problem or "this is not the address of a Tracer server"
            self.find("server", Status.PROBLEM, f"{self.url}: {problem}.", await self._elsewhere())
        elif not content["projectors"]:
            message = f"{self.url} answers. Without a projector, it makes no runs of spans."
            self.find("server", Status.NOTE, message, "Set its TRACER_PROJECTORS to 1 or more.")
        else:
            self.find("server", Status.OK, f"{self.url} answers.")
        if answer is not None and "date" in answer.headers:
            with suppress(ValueError):
                self._check_clock(parsedate_to_datetime(answer.headers["date"]))
        await self._list_ports()
        if is_tracer:
            await self._check_key("key", self.key, "TRACER_API_KEY")
        return is_tracer

    def _check_clock(self, of_server: datetime) -> None:
        difference = utc_now() - of_server
        if abs(difference) <= CLOCK_DIFFERENCE:
            self.find("clock", Status.OK, "This machine and the server have the same time.")
            return
        direction = "ahead of" if difference > timedelta() else "behind"
        shown = timedelta(minutes=round(abs(difference) / timedelta(minutes=1)))
        message = f"The clock of this machine is {shown} {direction} the server's."
        fix = "Set the clock. Lists are sorted by the starts of runs: choose *All time*."
        self.find("clock", Status.PROBLEM, message, fix)

    async def _elsewhere(self) -> str:
        """Return what to do if no Tracer server answers at the address."""
        parts = urlsplit(self.url)
        candidates = (_at(self.url, parts.port), _at(self.url, _port(LOCAL_SERVER)), LOCAL_SERVER)
        for url in dict.fromkeys(candidates):
            if await self._listener(url) == "Tracer":
                return f"A Tracer server answers at {url}: set TRACER_URL={url}."
        if await self._listener(self.url) == "gRPC":
            return "This is a port for gRPC. Set TRACER_URL to the address of the viewer."
        return "Start the server (`tracer serve`), or set TRACER_URL to the address of the viewer."

    async def _list_ports(self) -> None:
        """Report what listens on the ports that are often confused."""
        ports = tuple(dict.fromkeys((_port(self.url), GRPC_PORT, COLLECTOR_PORT)))
        heard = await asyncio.gather(*(self._listener(_at(self.url, port)) for port in ports))
        listed = ", ".join(
            f"{port} {name or 'nothing'}" for port, name in zip(ports, heard, strict=True)
        )
        self.find("ports", Status.OK, f"{urlsplit(self.url).hostname} has {listed}.")

    async def _listener(self, url: str) -> str | None:
        """Return what listens at an address; None if nothing does."""
        answer, problem = await self._request("GET", f"{url}/readyz")
        if answer is not None:
            return "Tracer" if "projectors" in _json(answer) else "HTTP"
        if str(problem).startswith(("connection refused", "no connection")):
            return None
        return "gRPC" if await speaks_grpc(url) else "unknown"

    async def _check_key(self, check: str, key: str | None, source: str) -> None:
        """Check what a key allows, and remember it."""
        answer, _ = await self._request("GET", f"{self.url}/api/sign-in", key=key)
        caller = _json(answer)
        if "scopes" not in caller:
            message, fix = f"{self.url}/api/sign-in: {_reason(answer)}", None
            if answer is not None and answer.status_code == HTTPStatus.UNAUTHORIZED:
                state = "has none" if key is None else "has another one"
                message = f"The server requires one of its keys, and {source} {state}."
                fix = f"Set a key of the server. {_RECORD}"
            self.find(check, Status.PROBLEM, message, fix)
            return
        self.callers[key] = caller
        if caller["keyId"] is None:
            self.find(check, Status.OK, "The server requires no key.")
            return
        scopes = ", ".join(caller["scopes"])
        message = f"`{caller['keyName']}` of the project `{caller['project']}` may {scopes}."
        if self._may(key, "record"):
            self.find(check, Status.OK, message)
        else:
            self.find(check, Status.PROBLEM, message, f"It cannot record. {_RECORD}")

    def _may(self, key: str | None, scope: str) -> bool:
        return bool({scope, "admin"} & set(self.callers.get(key, {}).get("scopes", ())))

    def check_machine(self, settings: Settings) -> None:
        """Check what recorders and exporters on this machine share."""
        if settings.disabled:
            message = "TRACER_DISABLED turns `tracer.connect()` off."
            self.find("recorder", Status.PROBLEM, message, "Remove TRACER_DISABLED.")
        files = list_spool_files(settings.home)
        waiting = sum(each.events for each in files if not each.is_open)
        if waiting:
            message = f"{counted(waiting, 'event')} of recorders wait on this machine."
            self.find("spool", Status.PROBLEM, message, "See `tracer spool list`.")
        parts = urlsplit(self.url)
        if getproxies().get(parts.scheme) and not proxy_bypass(parts.hostname or ""):
            message = f"Exporters use the proxy of {parts.scheme.upper()}_PROXY."
            fix = f"If it does not reach the server, set NO_PROXY={parts.hostname}."
            self.find("proxy", Status.NOTE, message, fix)

    async def check_sending(self) -> None:
        """Send test data to the server with `TRACER_API_KEY`."""
        headers = (("authorization", f"Bearer {self.key}"),) if self.key else ()
        await self._send(
            "run",
            tuple(Endpoint(each, f"{self.url}/v1/{each}", HTTP, headers) for each in SIGNALS),
        )

    async def check_emitter(
        self, emitter: Emitter, machine: Machine, *, is_asked: bool, may_send: bool
    ) -> None:
        """Check the settings of a program, and send test data as the program would.

        Args:
            emitter: The program.
            machine: Has the settings.
            is_asked: Whether to check it if it is not set up, too.
            may_send: Whether the server answers.
        """
        name = emitter.name
        is_installed = not emitter.program or shutil.which(emitter.program) is not None
        try:
            found = machine.settings_of(emitter)
        except Unreadable as error:
            self.find(name, Status.PROBLEM, str(error), "Correct the file.")
            return
        if not is_asked and not emitter.is_set_up(found, is_installed):
            if is_installed and emitter.program:
                self.find(name, Status.OFF, "It is not set up to send.", _PAGE)
            return
        endpoints = tuple(emitter.endpoints(found))
        problems, notes = setting_problems(emitter, found, self.url)
        problems += [each for end in endpoints if (each := endpoint_problem(end, self.url))]
        for status, listed in ((Status.PROBLEM, problems), (Status.NOTE, notes)):
            for message, fix in listed:
                self.find(name, status, message, fix)
        if problems or not may_send:
            return
        if endpoints in self.sent:
            addresses = " and ".join(dict.fromkeys(each.address for each in endpoints))
            self.find(name, self.sent[endpoints], f"It sends to {addresses}: see above.")
            return
        await self._send(name, endpoints)

    async def _send(self, check: str, endpoints: tuple[Endpoint, ...]) -> None:
        """Send test data through endpoints, wait for the run, and report the result."""
        finding = await self._sent_through(check, endpoints)
        self.sent[endpoints] = finding.status
        self.find(check, finding.status, finding.message, finding.fix)

    async def _sent_through(self, check: str, endpoints: tuple[Endpoint, ...]) -> Finding:
        run_id = new_id()
        items = " and ".join(_ITEMS[each.signal] for each in endpoints)
        addresses = " and ".join(dict.fromkeys(each.address for each in endpoints))
        for endpoint in endpoints:
            problem = await self._deliver(endpoint, run_id.hex)
            if problem is not None:
                fix = _RECORD if problem.startswith(("401", "403")) else endpoint.fix(self.url)
                return Finding(check, Status.PROBLEM, f"{endpoint}: {problem}", fix)
        is_grpc = any(each.protocol == GRPC for each in endpoints)
        host, own_host = (urlsplit(each).hostname for each in (endpoints[0].url, self.url))
        is_direct = endpoints[0].address == address_of(self.url) or (is_grpc and host == own_host)
        key = endpoints[0].key if is_direct else self.key
        if key not in self.callers:
            await self._check_key(check, key, check)
        if is_grpc:
            message = f"{addresses} answers gRPC. No test data was sent."
            return Finding(check, Status.OK, message)
        own, project = (self.callers.get(each, {}).get("project") for each in (self.key, key))
        if own and project and own != project:
            message = f"Its key belongs to the project `{project}`, TRACER_API_KEY to `{own}`."
            fix = f"Sign in with a key of the project `{project}`."
            self.find(check, Status.NOTE, message, fix)
        readers = [
            each
            for each in dict.fromkeys((key, self.key))
            if self._may(each, "read") and self.callers[each]["project"] == project
        ]
        if not readers:
            message = f"{addresses} accepted {items}. No key here may read the run."
            return Finding(check, Status.NOTE, message, f"Look for {self.url}/runs/{run_id}.")
        path = f"{self.url}/api/runs/{run_id}"
        wanted = tuple(sum(each.signal == signal for each in endpoints) for signal in SIGNALS)
        spans, logs = await self._wait(path, readers[0], wanted)
        if (spans, logs) != wanted:
            message = (
                f"{addresses} accepted {items}. After {self.seconds:g} s, the "
                f"server has {counted(spans, 'span')} and {counted(logs, 'log record')} of them."
            )
            fix = f"Check where {addresses} sends, with which key, and what it drops."
            return Finding(check, Status.PROBLEM, message, _LOG if is_direct else fix)
        ending = "It is one of *Other traces*"
        for each in readers:
            if self._may(each, "admin"):
                await self._request("DELETE", path, key=each)
                ending = "It was deleted"
        message = f"{addresses} accepted {items}, and a run appeared. {ending}."
        return Finding(check, Status.OK, message)

    async def _deliver(self, endpoint: Endpoint, trace_id: str) -> str | None:
        """Send test data of one signal. Return what went wrong."""
        if endpoint.protocol == GRPC:
            return None if await speaks_grpc(endpoint.url) else "no answer over gRPC."
        answer, problem = await self._request(
            "POST",
            endpoint.url,
            content=orjson.dumps(_test_data(endpoint.signal, trace_id)),
            headers={**dict(endpoint.headers), "content-type": "application/json"},
        )
        if answer is None:
            return f"{problem}."
        refused = _json(answer).get("partialSuccess")
        if answer.is_success and not refused:
            return None
        return f"{answer.status_code}: {refused or _reason(answer)}"

    async def _wait(self, path: str, key: str | None, wanted: tuple[int, ...]) -> tuple[int, int]:
        """Wait until the test run has these numbers of spans and log records. Return them."""
        counts, end = (0, 0), time.monotonic() + self.seconds
        while counts != wanted and time.monotonic() < end:
            run, _ = await self._request("GET", path, key=key)
            if "rootPlanId" in _json(run) and not _json(run).get("behind"):
                spans, _ = await self._request("GET", f"{path}/spans", key=key)
                counts = len(_json(spans).get("items", ())), len(_json(spans).get("logs", ()))
            if counts != wanted:
                await asyncio.sleep(0.2)
        return counts

    async def _request(
        self, method: str, url: str, *, key: str | None = None, **request: Any
    ) -> tuple[httpx2.Response | None, str | None]:
        """Return the answer, or what prevented it."""
        if key is not None:
            request["headers"] = {"Authorization": f"Bearer {key}"}
        try:
            return await self.client.request(method, url, **request), None
        except httpx2.HTTPError as error:
            return None, connection_problem(error)
        except (httpx2.InvalidURL, ValueError) as error:  # a header that is no text
            return None, str(error)


_ITEMS = {"traces": "a span", "logs": "a log record"}
_PROGRAMS = {each.program: each for each in EMITTERS if each.program}


def doctor(
    programs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROGRAM]...",
            help=f"Check these programs: {', '.join(_PROGRAMS)}. If omitted, check all that are "
            "set up.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--wait", help="Seconds in which the test run must appear.")
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Find out why a run does not appear: check the server, keys, ports, clocks and programs."""

    async def run(settings: Settings) -> None:
        if unknown := set(programs or ()) - _PROGRAMS.keys():
            known = ", ".join(_PROGRAMS)
            raise BadRequest(f"The program {min(unknown)} is not known. Known are {known}.")
        machine = Machine(os.environ, Path.home(), Path.cwd())
        key = None if settings.api_key is None else settings.api_key.get_secret_value()
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        async with httpx2.AsyncClient(timeout=timeout, trust_env=False) as client:
            url, report = settings.url or LOCAL_SERVER, _skip if as_json else _print
            examination = Examination(url, key, client, seconds, report)
            is_there = await examination.check_server()
            examination.check_machine(settings)
            if is_there and not programs:
                await examination.check_sending()
            for each in [_PROGRAMS[name] for name in programs] if programs else EMITTERS:
                await examination.check_emitter(
                    each, machine, is_asked=bool(programs), may_send=is_there
                )
        problems = sum(each.status is Status.PROBLEM for each in examination.findings)
        if as_json:
            answer = {"ok": not problems, "url": examination.url, "checks": examination.findings}
            typer.echo(orjson.dumps(answer))
        else:
            typer.echo(f"\nFound {counted(problems, 'problem') if problems else 'no problem'}.")
        if problems:
            raise typer.Exit(1)

    run_command(run)


async def speaks_grpc(url: str) -> bool:
    """Return whether a server speaks HTTP/2 without an upgrade, as gRPC does (RFC 9113, 3.4)."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                parts.hostname, _port(url), ssl=is_tls or None
            )
            try:
                writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
                answer = await reader.readexactly(9)
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
        return False
    return answer[3] == 4  # the type of a SETTINGS frame


def _port(url: str) -> int:
    return int(address_of(url).rpartition(":")[2])


def _at(url: str, port: int | None) -> str:
    """Return the address of another port of the same host."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def _skip(finding: Finding) -> None:
    """Print nothing."""


def _print(finding: Finding) -> None:
    out = Console(highlight=False, soft_wrap=True, markup=False)
    out.print(f"{finding.status:9}", style=_STYLES[finding.status], end="")
    out.print(f"{finding.check:19}{finding.message}")
    if finding.fix:
        out.print(f"{'':28}{finding.fix}")


def _json(answer: httpx2.Response | None) -> dict[str, Any]:
    with suppress(orjson.JSONDecodeError):
        content = orjson.loads(b"" if answer is None else answer.content)
        if isinstance(content, dict):
            return content
    return {}


def _reason(answer: httpx2.Response | None) -> str:
    """Return a server's explanation of a failure."""
    content = _json(answer)
    reason = content.get("detail") or content.get("message") or "the answer is not from Tracer"
    return f"{str(reason).rstrip('.')}."


def _test_data(signal: str, trace_id: str) -> dict[str, Any]:
    """Return a span or a log record of a trace, as OTLP/JSON."""
    now, text = str(time.time_ns()), {"stringValue": NAME}
    item: dict[str, Any] = {"traceId": trace_id, "spanId": trace_id[16:]}
    if signal == "traces":
        kind, items = "Spans", "spans"
        item |= {"name": NAME, "kind": 1, "startTimeUnixNano": now, "endTimeUnixNano": now}
    else:
        kind, items = "Logs", "logRecords"
        item |= {"timeUnixNano": now, "body": text}
    resource = {"attributes": [{"key": "service.name", "value": text}]}
    return {
        f"resource{kind}": [{"resource": resource, f"scope{kind}": [{items: [item]}]}],
    }
