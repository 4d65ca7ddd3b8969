"""The command of `make agents`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.databases import find_database, fresh_database
from tests.otel.coding_agents.live.compare import (
    Shown,
    calls_apart,
    differences,
    false_links,
    open_calls,
)
from tests.otel.coding_agents.live.models import ScriptedModel, serving
from tests.otel.coding_agents.live.programs import PROGRAMS, Program, Run, run_program
from tests.otel.coding_agents.live.results import Result, lines, save
from tests.otel.coding_agents.live.scenarios import SCENARIOS
from tests.servers import tracer_server

_SETTLED_SECONDS = 4
_SETTINGS = {"TRACER_PROJECTORS": "1", "TRACER_SPAN_IDLE_SECONDS": "20"}


def main() -> int:
    """Install the programs, run all scenarios, print the table and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help="emitters, or emitter/scenario")
    parser.add_argument("--programs", type=Path, help="a folder in which npm installed them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tracer-agents-") as folder:
        home = Path(folder)
        home.chmod(0o711)
        programs = [
            (program, scenario)
            for program in PROGRAMS
            for scenario in program.scenarios
            if not options.only
            or {program.emitter, f"{program.emitter}/{scenario}"} & {*options.only}
        ]
        installed = options.programs or home / "programs"
        if options.programs is None:
            _install({program for program, _ in programs}, installed)
        found = []
        with _tracer(home) as tracer:
            for program, scenario in programs:
                result = _run(program, scenario, installed, home, tracer)
                print(result.line, flush=True)
                save([result])
                found.append(result)
    print("\n", *lines(found), sep="\n")
    return 0 if all(each.has_run for each in found) else 1


def _install(programs: set[Program], folder: Path) -> None:
    folder.mkdir()
    (folder / "package.json").write_text("{}")
    packages = sorted(f"{program.package}@latest" for program in programs)
    # Without their scripts, of which one starts the program.
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    subprocess.run(["npm", "install", *options, *packages], cwd=folder, check=True)


class _Tracer:
    """A server with a project of its own for each scenario."""

    def __init__(self, address: str, database_url: str) -> None:
        self.address = address
        self._database_url = database_url

    def key(self, project: str) -> str:
        """Create a project, and return its key."""
        created = subprocess.run(
            [
                *(sys.executable, "-m", "tracer.cli", "keys", "create", "agents", "--json"),
                *("--scope", "admin", "--scope", "record", "--project", project, "--yes"),
            ],
            env={**os.environ, "TRACER_DATABASE_URL": self._database_url},
            check=True,
            capture_output=True,
            text=True,
        )
        secret: str = json.loads(created.stdout[created.stdout.index("{") :])["secret"]
        return secret

    def shown(self, client: httpx.Client) -> Shown:
        """Return all runs of a project, with their trees."""
        runs = self._read(client, "/api/runs?limit=100&parts=all")["items"]
        shown = Shown(sorted(runs, key=lambda run: run["startedAt"] or ""))
        for run in shown.runs:
            shown.add(self._read(client, f"/api/plans/{run['rootPlanId']}/tree?parts=own"))
        return shown

    def rows(self, client: httpx.Client) -> int:
        """Return the number of rows in the list: runs that continue each other are one."""
        return len(self._read(client, "/api/runs?limit=100")["items"])

    @staticmethod
    def _read(client: httpx.Client, path: str) -> Any:
        return client.get(path).raise_for_status().json()

    def settled(self, client: httpx.Client) -> Shown:
        """Return what is shown once nothing changes any more."""
        end = time.monotonic() + 90
        before, since = None, time.monotonic()
        while True:
            shown = self.shown(client)
            now = [(run["rootPlanId"], run["revision"], run["status"]) for run in shown.runs]
            if now != before:
                before, since = now, time.monotonic()
            is_open = not now or any(status == "running" for *_, status in now)
            if time.monotonic() - since > (30 if is_open else _SETTLED_SECONDS):
                return shown
            if time.monotonic() > end:
                return shown
            time.sleep(0.5)


@contextmanager
def _tracer(home: Path) -> Iterator[_Tracer]:
    with (
        find_database().start() as server_url,
        fresh_database(server_url) as database_url,
        tracer_server(database_url, home, settings=_SETTINGS) as address,
    ):
        yield _Tracer(address, database_url)


def _binary(program: Program, installed: Path) -> Path:
    system = {"Linux": "linux", "Darwin": "darwin"}[platform.system()]
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    architecture = {"x64": "x86_64", "arm64": "aarch64"}[machine]
    triple = f"{architecture}-{'unknown-linux-musl' if system == 'linux' else 'apple-darwin'}"
    name = program.binary.format(platform=f"{system}-{machine}", triple=triple)
    return installed / "node_modules" / name


def _run(program: Program, name: str, installed: Path, home: Path, tracer: _Tracer) -> Result:
    """Run a scenario and compare."""
    scenario = SCENARIOS[name]
    folder = home / f"{program.emitter}-{name}"
    run_home, work = folder / "home", folder / "work"
    run_home.mkdir(parents=True)
    work.mkdir()
    model = ScriptedModel(scenario, program.script_of(scenario), program.translate)
    package = installed / "node_modules" / program.package / "package.json"
    version = json.loads(package.read_text())["version"]
    key = tracer.key(folder.name)
    headers = {"authorization": f"Bearer {key}"}
    with (
        serving(model),
        httpx.Client(base_url=tracer.address, headers=headers, timeout=60) as client,
    ):
        watch = _Watch(model, tracer, client)
        run = Run(run_home, work, model, _binary(program, installed))
        with watch:
            output = run_program(program, run, tracer.address, key)
        shown = tracer.settled(client)
        rows = tracer.rows(client)
    apart = calls_apart(model) if program.sends_batches else set[str]()
    found = sorted(watch.false) + differences(model, shown, _printed_cost(output), apart)
    has_run = any(answer.tag for answer in model.answers)
    if not has_run:
        errors = (run_home / "errors.log").read_text().strip().splitlines()
        found = [f"the program asked the model for nothing: {errors[-1] if errors else ''}"]
    return Result(
        emitter=program.emitter,
        version=version,
        scenario=name,
        date=datetime.now(UTC).date().isoformat(),
        prompts=len(scenario.prompts),
        rows=rows,
        calls=sum(len(answer.calls) for answer in model.answers),
        agents=len({answer.tag for answer in model.answers if "/" in (answer.tag or "")}),
        running_calls=len(watch.placed | watch.unplaced),
        running_placed=len(watch.placed),
        differences=[
            each if count == 1 else f"{each} ({count} times)"
            for each, count in Counter(found).items()
        ],
        has_run=has_run,
        calls_apart=len(apart),
    )


class _Watch:
    """Read what Tracer shows while a program runs."""

    def __init__(self, model: ScriptedModel, tracer: _Tracer, client: httpx.Client) -> None:
        self.false: set[str] = set()
        self.placed: set[str] = set()
        """The calls that were shown below their agent while they ran."""
        self.unplaced: set[str] = set()
        """The calls that were shown elsewhere while they ran."""
        self._model = model
        self._tracer = tracer
        self._client = client
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            shown = self._tracer.shown(self._client)
            self.false |= {f"while it ran, {each}" for each in false_links(self._model, shown)}
            placed, unplaced = open_calls(self._model, shown)
            self.placed |= placed
            self.unplaced |= unplaced
        self.unplaced -= self.placed


def _printed_cost(output: str) -> float | None:
    """Return the cost in the last result that a program printed as JSON; None without one."""
    cost = None
    for line in output.splitlines():
        if '"total_cost_usd"' in line:
            cost = float(json.loads(line)["total_cost_usd"])
    return cost


if __name__ == "__main__":
    sys.exit(main())
