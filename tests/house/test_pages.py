"""The programs of the README and of `docs/get-started`, run as a reader runs them.

A page's install block begins a section; the section ends before the next install block. For each
section, the commands of the block install into a new environment, from wheels of this checkout and
from the index. Then its blocks are used in order:

* The paragraph "Save this as `NAME`" precedes the text of a file.
* Commands (`sh`) run in the folder of the files. Variables that they export stay set.
* The paragraph "It prints:" precedes the output of these commands.
* The paragraph "The run's tree:" precedes the outline of the run that they recorded last.
* A paragraph with "Fragment of" precedes a block that is not run.

In a page's output and in its names of files to install, `…` matches any text. The model is
`tests/house/scripted_model.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest

from scripts.install_blocks import BLOCK, PAGES, TABLE, installs, page_with_blocks
from tests.api.commands import serving_here
from tests.house.project_files import ROOT
from tests.house.scripted_model import FORMATS, answer_request
from tests.house.test_distributions import PROGRAMS, build, run
from tests.servers import ADDRESS, ONE_PROJECTOR
from tests.tools.http_servers import HttpServer, Received, http_server, reply
from tests.trees import Node, complete

WITHOUT_PROGRAMS = {
    "coding-agents.md": "It describes settings of programs that need an account.",
    "coming-from.md": "It links to the programs of other pages.",
    "no-run.md": "It describes failures.",
}
"""Pages of get-started, and why they are not run."""
NODE = "node@22"
"""The package that contains the Node that the pages require."""
DEFAULT_SERVER = "http://127.0.0.1:8420"
RECEIVING = ("langfuse", "langsmith", "traceloop", "openlit")
"""Tracing tools that also send the run to their own server, over HTTP."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SAVE = re.compile(r"[Ss]ave (?:this|the program|it) as\s+`([\w.-]+)`")
_EXPORT = re.compile(r"^export .+$", re.MULTILINE)
_INSTALL = re.compile(r"\b(?:pip|npm|tool) install |\buvx |\buv add ")


@dataclass(frozen=True)
class Block:
    intro: str
    """The paragraph before it."""
    language: str
    text: str


@dataclass(frozen=True)
class Section:
    """A part of a page, from an install block to the next one."""

    page: Path
    names: tuple[str, ...]
    """The install commands, as names of the table."""
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return f"{self.page.name}: {' '.join(self.names)}"


@dataclass
class Reader:
    """Someone who follows a section, in a folder with an environment of its own."""

    folder: Path
    variables: dict[str, str]
    exports: list[str] = field(default_factory=list)

    async def run(self, commands: str) -> str:
        """Run commands of a page, and return what they print."""
        script = "\n".join(["set -e", *self.exports, commands])
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            cwd=self.folder,
            env={**os.environ, **self.variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await asyncio.wait_for(process.communicate(), 300)
        assert process.returncode == 0, f"{commands}\n{output.decode()}\n{errors.decode()}"
        self.exports += _EXPORT.findall(commands)
        return output.decode()


def _sections(page: Path) -> Iterator[Section]:
    """Return the sections of a page. What follows the server's own install belongs to each."""
    text = page.read_text("utf-8")
    found = list(BLOCK.finditer(text))
    ends = [*(each.start() for each in found[1:]), len(text)]
    shared: list[Block] = []
    for install, end in zip(found, ends, strict=False):
        names, at = tuple(install["names"].split()), install.end()
        blocks = [] if names == ("server",) else [*shared]
        for fence in _FENCE.finditer(text, install.end(), end):
            paragraphs = text[at : fence.start()].strip().split("\n\n")
            blocks.append(Block(paragraphs[-1].replace("\n", " "), fence[1], fence[2]))
            at = fence.end()
        if names == ("server",):
            shared = blocks
        else:
            yield Section(page, names, tuple(blocks))


TESTED = [
    ROOT / "README.md",
    *(
        each
        for each in sorted((ROOT / "docs" / "get-started").glob("*.md"))
        if each.name not in WITHOUT_PROGRAMS
    ),
    ROOT / "docs" / "guides" / "testing.md",
]
SECTIONS = [
    section
    for page in TESTED
    for section in _sections(page)
    if any(_SAVE.search(block.intro) for block in section.blocks)
]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the client's wheel."""
    return build(ROOT, tmp_path_factory.mktemp("dist")).parent


@pytest.fixture(scope="session")
def complete_dist(dist: Path) -> Path:
    """Return a folder with what `make wheels` builds."""
    build(ROOT / "server", dist)
    pack = ("npm", "pack", "--silent", "--pack-destination", dist)
    run(*pack, cwd=ROOT / "clients" / "typescript")
    return dist


@pytest.fixture
async def model() -> AsyncIterator[HttpServer]:
    async with http_server(answer_request) as server:
        yield server


@pytest.mark.thorough
@pytest.mark.parametrize("section", SECTIONS, ids=str)
async def test_page_records_what_it_shows(
    section: Section, complete_dist: Path, database_url: str, tmp_path: Path, model: HttpServer
) -> None:
    with serving_here(database_url, tmp_path / "server", projectors=1) as url:
        reader = _reader(tmp_path, complete_dist, url, model)
        if "openai-agents" in section.names:
            # Its exporter has no variable for an address. Logfire and OpenLIT need its tracing.
            reader.variables["OPENAI_AGENTS_DISABLE_TRACING"] = "true"
        await _install(reader, [installs()[name].today for name in section.names])
        await _follow(section, reader, url)
    others = [
        each for each in model.received if not each.path.endswith(tuple(FORMATS)) and each.body
    ]
    assert bool(others) or not set(section.names) & set(RECEIVING)


@pytest.mark.thorough
async def test_opentelemetry_page_works_with_the_server_of_the_wheel(
    complete_dist: Path, tmp_path: Path, model: HttpServer
) -> None:
    [section] = [each for each in SECTIONS if each.page.name == "opentelemetry.md"]
    reader = _reader(tmp_path, complete_dist, "", model)
    async with _server(reader, installs()["server"].today) as url:
        reader.variables["TRACER_URL"] = url
        await _install(reader, [installs()[name].today for name in section.names])
        await _follow(section, reader, url)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [name for name, each in installs().items() if each.today != each.published]
)
async def test_published_command_installs_from_an_index(
    name: str, complete_dist: Path, tmp_path: Path, model: HttpServer
) -> None:
    """npm's packages come from its own registry only: the tarball replaces the package there."""
    reader = _reader(tmp_path, complete_dist, "", model)
    (tmp_path / "dist").unlink()
    async with _index(complete_dist) as address:
        reader.variables["UV_INDEX"] = address
        command = installs()[name].published
        if command.startswith("uvx"):
            async with _server(reader, command):
                return
        if command.startswith("npm"):
            command = command.replace(" tracer-lineage ", f" {complete_dist}/tracer-lineage-*.tgz ")
        await _install(reader, [command])


def test_install_blocks_of_all_pages_are_current() -> None:
    texts = {page: page.read_text("utf-8") for page in PAGES}

    assert [
        str(page.relative_to(ROOT))
        for page, text in texts.items()
        if text != page_with_blocks(text)
    ] == [], "Run `make docs-install`."


def test_pages_contain_install_commands_only_in_their_install_blocks() -> None:
    texts = {page: BLOCK.sub("", page.read_text("utf-8")) for page in PAGES if page != TABLE}

    assert [
        f"{page.relative_to(ROOT)}: {line}"
        for page, text in texts.items()
        for line in text.splitlines()
        if _INSTALL.search(line)
    ] == []


@pytest.mark.parametrize("page", TESTED, ids=lambda page: page.name)
def test_each_program_of_a_page_is_saved_and_run(page: Path) -> None:
    sections = [each for each in SECTIONS if each.page == page]
    blocks = [block for section in sections for block in section.blocks]
    programs = {each: found[1] for each in blocks if (found := _SAVE.search(each.intro))}
    code = [each for each in blocks if each.language not in ("sh", "text")]

    assert sections
    assert [each.text for each in code if each not in programs and not _is_fragment(each)] == []
    assert [
        name
        for program, name in programs.items()
        if not any(Path(name).stem in each.text for each in blocks if each != program)
    ] == []


def _reader(folder: Path, dist: Path, url: str, model: HttpServer) -> Reader:
    """Return a reader with an empty environment of Python, and the variables of each page."""
    environment = folder / "environment"
    run(PROGRAMS / "uv", "venv", "--quiet", "--python", sys.executable, environment)
    programs = environment / "bin"
    pip = f'#!/bin/sh\nexec "{PROGRAMS}/uv" pip "$@" --quiet --python "{programs}/python"\n'
    (programs / "pip").write_text(pip)  # uv's pip is faster
    (programs / "pip").chmod(0o755)
    (programs / "uvx").symlink_to(PROGRAMS / "uvx")
    (folder / "dist").symlink_to(dist)
    variables = {
        "PATH": f"{programs}:{folder}/node_modules/.bin:{os.environ['PATH']}",
        "TRACER_URL": url,
        "TRACER_HOME": str(folder / "home"),
        "OPENAI_BASE_URL": f"{model.url}/v1",
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "none",
        "LANGFUSE_PUBLIC_KEY": "pk",
        "LANGFUSE_SECRET_KEY": "sk",
        "LANGFUSE_BASE_URL": model.url,
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_API_KEY": "none",
        "LANGSMITH_ENDPOINT": model.url,
        "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db",
        "LMNR_PROJECT_API_KEY": "none",
        "LMNR_BASE_URL": "http://127.0.0.1",
        "LOGFIRE_SEND_TO_LOGFIRE": "false",
        "TRACELOOP_BASE_URL": model.url,
        "TRACELOOP_API_KEY": "none",
        "TRACELOOP_TELEMETRY": "false",
        "OPENLIT_TRACES": f"{model.url}/v1/traces",
    }
    return Reader(folder, variables)


async def _install(reader: Reader, commands: list[str]) -> None:
    """Run the install commands; those that start a server belong to another terminal."""
    if any(each.startswith("npm") for each in commands):
        await reader.run(f"npm install {NODE}")
    for command in commands:
        if not command.startswith("uvx"):
            await reader.run(command)
    await reader.run("pip check")


async def _follow(section: Section, reader: Reader, url: str) -> None:
    output = ""
    for block in section.blocks:
        text = block.text.replace(DEFAULT_SERVER, url)
        if _is_fragment(block):
            continue
        if name := _SAVE.search(block.intro):
            (reader.folder / name[1]).write_text(text, "utf-8")
        elif block.language == "sh":
            # A reader's key. The scripted model takes any.
            output = await reader.run(text.replace("=…", "=none"))
        elif block.intro.endswith("prints:"):
            expected = re.escape(text).replace("…", ".*")
            assert re.fullmatch(expected, output), f"expected:\n{text}\nprinted:\n{output}"
        else:
            assert block.intro.endswith("tree:"), block
            await _compare_tree(text, url)


def _is_fragment(block: Block) -> bool:
    return "Fragment of" in block.intro


async def _compare_tree(expected: str, url: str) -> None:
    """Compare the newest run with an outline. Spans may arrive after their program has ended."""
    shown = ""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        for _ in range(100):
            runs = (await client.get("/api/runs", params={"limit": 1})).json()["items"]
            if runs:
                path = f"/api/plans/{runs[0]['rootPlanId']}/tree"
                shown = outline(complete((await client.get(path)).json()))
            if shown == expected:
                return
            await asyncio.sleep(0.2)
    assert shown == expected


def outline(plan: Node) -> str:
    """Return a run's tree in the words of the viewer."""
    totals = plan["cumulative"]
    tokens = f"tokens {totals['inputTokens']} in, {totals['outputTokens']} out"
    first, *others = _plan_lines(plan, "")
    return "\n".join([f"{first}: {plan['status']}, {tokens}", *others, ""])


def _plan_lines(plan: Node, margin: str) -> Iterator[str]:
    """Return the lines of an agent. As in the viewer, its only step is not a line of its own."""
    yield f"{margin}{plan['agentName'] or plan['template']}{_ending(plan)}"
    for step in plan["agentExecutions"]:
        inner = margin + "  "
        if len(plan["agentExecutions"]) > 1:
            yield f"{inner}{step['agentName']}{_ending(step)}"
            inner += "  "
        for number, think_act in enumerate(step["thinkActs"], 1):
            yield f"{inner}LLM call {number}{_ending(think_act)}"
            for call in think_act["toolCalls"]:
                yield from _call_lines(call, inner + "  ")
        for call in step["toolCalls"]:
            yield from _call_lines(call, inner)
        for sub_plan in step["subPlans"]:
            yield from _plan_lines(sub_plan, inner)


def _call_lines(call: Node, margin: str) -> Iterator[str]:
    name = f"{margin}{call['name']}"
    children = [*call["toolCalls"], *call["subPlans"]]
    if len(children) == 1 and call["subPlans"]:
        agent, *below = _plan_lines(call["subPlans"][0], margin)
        yield f"{name} ↳ {agent.strip()}"
        yield from below
        return
    yield f"{name}{_ending(call)}"
    for inner in call["toolCalls"]:
        yield from _call_lines(inner, margin + "  ")
    for sub_plan in call["subPlans"]:
        yield from _plan_lines(sub_plan, margin + "  ")


def _ending(node: Node) -> str:
    return "" if node["status"] == "succeeded" else f": {node['status']}"


@asynccontextmanager
async def _server(reader: Reader, command: str) -> AsyncIterator[str]:
    """Start a server with a page's command, on a free port; give its address."""
    with TemporaryDirectory() as home:
        # If this user is root, another one runs Postgres.
        await asyncio.to_thread(Path(home).chmod, 0o755)
        settings = {"TRACER_HOME": home, "TRACER_GRPC_PORT": "0", **ONE_PROJECTOR}
        process = await asyncio.create_subprocess_exec(
            *(*shlex.split(command, comments=True), "--port", "0"),
            cwd=reader.folder,
            env={**os.environ, **reader.variables, **settings},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout
        printed = ""
        while not (found := ADDRESS.search(printed)):
            line = await asyncio.wait_for(process.stdout.readline(), 300)
            assert line, printed
            printed += line.decode()
        try:
            yield found[1]
        finally:
            process.terminate()
            await process.communicate()


@asynccontextmanager
async def _index(dist: Path) -> AsyncIterator[str]:
    """Serve the wheels as a package index serves them (PEP 503)."""

    def answer(request: Received) -> bytes:
        *_, project, name = request.path.split("/")
        if name:
            return reply(body=(dist / name).read_bytes(), content_type="application/octet-stream")
        wheels = [each.name for each in dist.glob(f"{project.replace('-', '_')}-*.whl")]
        links = "".join(f'<a href="{each}">{each}</a>' for each in wheels)
        return reply(200 if wheels else 404, body=links, content_type="text/html")

    async with http_server(answer) as server:
        yield f"{server.url}/simple"
