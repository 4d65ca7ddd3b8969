"""The guides' examples work unchanged.

Each section is tested alone. TOML and YAML blocks become the files that their first lines name.
Python blocks run in order: a block with `await` runs in an event loop, any other in a thread
without one. A comment `# →` gives the value or the output of its line. `test_pages.py` runs the
pages of get-started.

A section that connects finds a server through `TRACER_URL` and the name `server_url`. At the end of
a section, its connections are closed.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.api.commands import serving_here
from tests.databases import fresh_database
from tests.tools.http_servers import Received, http_server, reply
from tracer.client import Tracing
from tracer.recorder import Recorder, Spool
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.tools import ToolRegistry, ToolService

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = (
    "guides/tools.md",
    "guides/migrating-tools.md",
    "guides/recording.md",
    "guides/prices.md",
    "guides/reading.md",
)

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_SHOWN = re.compile(r"^( *)(\S.*?) +# → (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    language: str
    text: str
    line: int
    """Where it begins in the guide, from 0."""


@dataclass(frozen=True)
class Section:
    guide: str
    heading: str
    examples: tuple[Example, ...]


def _sections(guide: str) -> list[Section]:
    text = (DOCS / guide).read_text(encoding="utf-8")
    headings = list(_HEADING.finditer(text))
    starts = [each.start() for each in headings]
    sections = []
    for heading, end in zip(headings, [*starts[1:], len(text)], strict=False):
        examples = tuple(
            Example(each[1], each[2], text[: each.start(2)].count("\n"))
            for each in _BLOCK.finditer(text, heading.start(), end)
        )
        sections.append(Section(guide, heading[1], examples))
    return [each for each in sections if each.examples]


@asynccontextmanager
async def _surroundings(folder: Path, database_url: str) -> AsyncIterator[dict[str, Any]]:
    """Give what the guides say that their examples have."""

    def weather(request: Received) -> bytes:
        city = request.path.removeprefix("/v1/")
        return reply(json={"city": city, "celsius": 21, "units": dict(request.query).get("units")})

    registry = ToolRegistry()
    async with (
        http_server(weather) as server,
        open_pool(database_url) as pool,
        Recorder(postgres_writer(ProjectPool(pool)), Spool(folder / "spool.sqlite3")) as recorder,
        ToolService(registry, recorder) as tools,
    ):
        yield {
            "__name__": "guide",
            "registry": registry,
            "recorder": recorder,
            "store": PostgresReader(ProjectPool(pool)),
            "tools": tools,
            "weather_url": server.url,
            "weather_host": server.host,
            "_show": _show,
        }


def _close(names: dict[str, Any]) -> None:
    for value in names.values():
        if isinstance(value, Tracing):
            value.close()


def _show(value: object, wanted: str) -> None:
    assert str(value) == wanted


async def _run(example: Example, guide: str, names: dict[str, Any]) -> None:
    text = _SHOWN.sub(
        lambda found: f"{found[1]}_show(({found[2].removeprefix('print')}), {found[3]!r})",
        example.text,
    )
    source = "\n" * example.line + text
    code = compile(source, str(DOCS / guide), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:
        await asyncio.to_thread(exec, code, names)


@pytest.fixture(scope="module")
def server_url(
    postgres_server_url: str, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of a server that all sections share."""
    with (
        fresh_database(postgres_server_url, _template) as database_url,
        serving_here(database_url, tmp_path_factory.mktemp("server")) as url,
    ):
        yield url


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(section, id=f"{guide}: {section.heading}")
        for guide in GUIDES
        for section in _sections(guide)
    ],
)
async def test_examples_of_each_guide_section_run(
    section: Section,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    database_url: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    async with _surroundings(tmp_path, database_url) as names, AsyncExitStack() as stack:
        if any(
            "tracer.connect" in each.text or "server_url" in each.text for each in section.examples
        ):
            names["server_url"] = request.getfixturevalue("server_url")
            monkeypatch.setenv("TRACER_URL", names["server_url"])
            monkeypatch.setenv("TRACER_HOME", str(tmp_path))
            stack.push_async_callback(asyncio.to_thread, _close, names)
        for example in section.examples:
            name = re.match(r"# (\S+\.\w+)\n", example.text)
            if name is not None:
                (tmp_path / name[1]).write_text(example.text, encoding="utf-8")
            elif example.language == "python":
                await _run(example, section.guide, names)
            else:
                # What is neither run nor read by an example could say anything.
                assert example.language in ("typescript", "sh")


def test_whole_program_of_the_tools_guide_prints_its_results(tmp_path: Path) -> None:
    program = DOCS.parent / "examples" / "tools.py"
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    assert [line.partition(": ")[::2] for line in done.stdout.splitlines()] == [
        ("record_pulse", "72 at the left arm"),
        (
            "record_pulse",
            "invalid_arguments: The arguments are invalid. "
            "beats: Input should be less than or equal to 250.",
        ),
        ("update_pulse", "tool_error: You have no record 7. Query first."),
        (
            "note",
            "missing_identity: No caller is set. "
            "Start the run, or call the tool, inside `with identity(…)`. A thread or an executor "
            "inherits the caller only if its function comes from `tracer.in_context(function)`.",
        ),
        ("note", "entry 10, attempt 1"),
        *(("buy", count) for count in "121"),
        ("book", "booked 5 at attempt 2"),
        ("transfer", "5 transferred"),
        ("transfer", "denied: More than 1000 needs a person."),
        ("add_item", '["salt"]'),
        ("add_item", '["salt","tea"]'),
        ("record_pulse", "70 at the left arm"),
        ("record_pulse", "71 at the left arm"),
        (
            "record_pulse",
            "budget_exhausted: The budget of 2 tool calls is used up. "
            "Answer with the information that you have.",
        ),
    ]


@pytest.mark.parametrize("guide", GUIDES)
def test_every_guide_has_code_examples(guide: str) -> None:
    assert any(
        each.language in ("python", "sh")
        for section in _sections(guide)
        for each in section.examples
    )
