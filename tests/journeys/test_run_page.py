"""Tasks on the page of a run, in both languages."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Browser, Page, expect

from tests.journeys.axe import violations
from tests.journeys.conftest import Records, Site
from tests.journeys.live_recording import LiveRecording
from tests.journeys.tree_page import details, open_run, row
from tests.telling_runs import deep_run, failing_run, long_conversation
from tracer.clock import utc_now
from tracer.records import Status, new_id
from tracer.records.events import (
    Event,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
)

LETTERS = 45
"""How many letters of its name and text a row shows at least on a usual screen."""

TEXTS = {
    "en-US": {
        "lineage": "Lineage",
        "parallel": "in parallel with 1 other",
        "follow": "Follow",
        "earlier": "22 earlier messages",
        "answered": "Answered",
        "full": "Show in full size",
        "download": "Download",
        "unfolded": "Show as a string",
    },
    "zh-CN": {
        "lineage": "层级路径",
        "parallel": "与另外 1 个并行",
        "follow": "跟随",
        "earlier": "之前的 22 条消息",
        "answered": "回答",
        "full": "查看原图",
        "download": "下载",
        "unfolded": "显示为字符串",
    },
}


@pytest.fixture(params=TEXTS)
async def spoken(
    request: pytest.FixtureRequest, browser: Browser
) -> AsyncIterator[tuple[Page, dict[str, str]]]:
    """Return a page in each language, and its texts."""
    context = await browser.new_context(
        locale=request.param, viewport={"width": 1280, "height": 800}
    )
    yield await context.new_page(), TEXTS[request.param]
    await context.close()


_SHOWN_LETTERS = """rows => rows.map(row => {
  let shown = 0, all = 0
  for (const part of row.querySelectorAll('.name, .agent, .excerpt')) {
    const length = part.textContent.trim().length
    all += length
    shown += length * Math.min(1, part.clientWidth / Math.max(1, part.scrollWidth))
  }
  return { shown, all, agent: [...row.querySelectorAll('.agent')].every(
    each => each.scrollWidth <= each.clientWidth) }
})"""


@pytest.mark.parametrize("width", [1280, 1440])
async def test_rows_show_their_text_beside_cost_and_duration(
    page: Page, site: Site, records: Records, width: int
) -> None:
    run = failing_run(start=utc_now())
    await records.write(*run.events)
    await page.set_viewport_size({"width": width, "height": 900})
    await open_run(page, site.address, run.root, all_records=False)
    await expect(row(page, run.origin)).to_be_visible()

    found = await page.locator('[role="treeitem"]').evaluate_all(_SHOWN_LETTERS)
    assert len(found) > 5
    for each in found:
        assert each["shown"] >= min(LETTERS, each["all"] - 1), found
        assert each["agent"], "the name of a sub-agent is cut"


async def test_breadcrumb_folds_the_agents_between(
    spoken: tuple[Page, dict[str, str]], site: Site, records: Records
) -> None:
    page, texts = spoken
    events = deep_run(15)
    await records.write(*events)
    last = [event for event in events if isinstance(event, ThoughtStarted)][-1]
    await page.goto(f"{site.address}/runs/{last.root_plan_id}?select={last.think_act_id}")
    lineage = page.get_by_role("navigation", name=texts["lineage"])

    await expect(lineage).to_have_count(1)
    await expect(lineage.get_by_role("link")).to_have_text(["agent_0", "agent_14"])
    await lineage.get_by_role("button").click()
    await expect(lineage.get_by_role("link")).to_have_count(15)
    assert await violations(page) == []


async def test_parallel_calls_say_so(
    spoken: tuple[Page, dict[str, str]], site: Site, records: Records
) -> None:
    page, texts = spoken
    run = _Run(utc_now() - timedelta(minutes=1))
    first, second, third = (run.call(name, "{}") for name in ("first", "second", "third"))
    run.finish(second, "done")
    run.finish(first, "done")
    run.start(third)
    run.finish(third, "done")
    await records.write(*run.end())
    await page.goto(f"{site.address}/runs/{run.root}")

    await expect(row(page, first)).to_contain_text(texts["parallel"])
    await expect(row(page, second)).to_contain_text(texts["parallel"])
    await expect(row(page, third)).not_to_contain_text(texts["parallel"])


async def test_model_call_reads_as_a_conversation_and_keeps_its_folds(
    spoken: tuple[Page, dict[str, str]], site: Site, records: Records
) -> None:
    page, texts = spoken
    run = long_conversation(start=utc_now())
    await records.write(*run.events)
    await page.goto(f"{site.address}/runs/{run.root}?select={run.rounds[11]}")
    shown = page.locator(".details-pane")
    await expect(shown.get_by_role("heading", name=texts["answered"])).to_be_visible()
    await expect(shown.get_by_text(texts["earlier"])).to_be_visible()
    text = await shown.inner_text()
    assert text.index(texts["earlier"]) < text.index(texts["answered"])

    await shown.get_by_text(texts["earlier"]).click()
    await row(page, run.rounds[12]).click()
    await expect(shown.locator("details[open]")).not_to_have_count(0)
    assert await violations(page) == []


async def test_live_run_names_its_call_and_follows_it_until_the_reader_scrolls_up(
    spoken: tuple[Page, dict[str, str]], site: Site, records: Records
) -> None:
    page, texts = spoken
    live = LiveRecording(records.writer)
    await live.begin(calls=60)
    call = new_id()
    live.calls.append(call)
    now = utc_now()
    await live.write(
        ToolCallStarted(
            **{**live.ids(call), "at": now},
            name="index_shard",
            arguments='{"shard": 193}',
            position=999,
        )
    )
    await page.goto(f"{site.address}/runs/{live.root}")
    line = page.locator(".live-line")
    await expect(line).to_contain_text('index_shard {"shard": 193}')
    follow = line.get_by_role("button", name=texts["follow"])
    await expect(follow).to_have_attribute("aria-pressed", "true")
    await expect(row(page, call)).to_be_in_viewport()

    await page.get_by_role("tree").hover()
    await page.mouse.wheel(0, -400)
    await expect(follow).to_have_attribute("aria-pressed", "false")
    await expect(row(page, call)).not_to_be_in_viewport()
    await follow.click()
    await expect(row(page, call)).to_be_in_viewport()
    assert await violations(page) == []


async def test_pictures_and_nested_json_are_shown_in_place(
    spoken: tuple[Page, dict[str, str]], site: Site, records: Records
) -> None:
    page, texts = spoken
    picture = f"data:image/png;base64,{base64.b64encode(_png(40, 30)).decode()}"
    svg = "data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode()
    run = _Run(
        utc_now() - timedelta(minutes=1),
        [{"type": "image_url", "image_url": {"url": picture}}],
    )
    call = run.call("camera", "{}")
    result = {"picture": picture, "drawing": svg, "inside": json.dumps({"deep": [1, 2]})}
    run.finish(call, json.dumps(result))
    await records.write(*run.end())
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))

    await page.goto(f"{site.address}/runs/{run.root}?select={run.round}")
    shown = page.locator(".details-pane")
    await expect(shown.locator("img")).to_have_js_property("naturalWidth", 40)
    await shown.get_by_role("button", name=texts["full"]).click()
    await expect(page.get_by_role("dialog").locator("img")).to_be_visible()
    await page.keyboard.press("Escape")

    await row(page, call).click()
    await expect(shown.locator("img")).to_have_js_property("naturalWidth", 40)
    await expect(shown.get_by_role("link", name=texts["download"])).to_have_count(2)
    await expect(shown).to_contain_text('"deep"')
    await shown.get_by_role("button", name=texts["unfolded"]).click()
    await expect(shown).to_contain_text('{"deep": [1, 2]}')
    foreign = [url for url in requested if not url.startswith((site.address, "data:"))]
    assert foreign == []
    assert await violations(page) == []


async def test_totals_of_header_and_panel_agree(page: Page, site: Site, records: Records) -> None:
    run = failing_run(start=utc_now())
    await records.write(*run.events)
    await open_run(page, site.address, run.root)

    await expect(details(page).locator(".totals")).to_be_visible()
    tokens = page.locator(".facts .number").first
    shown = await tokens.inner_text()
    totals = details(page).locator(".totals tbody tr").last
    cells = await totals.locator("td").all_inner_texts()
    assert cells[2] in shown
    assert cells[3] in shown


class _Run:
    """A run of one agent whose model call chose some tools."""

    def __init__(self, start: datetime, content: list[dict[str, Any]] | None = None) -> None:
        self.root, self.step, self.round = new_id(), new_id(), new_id()
        self._at = start
        self._events: list[Event] = []
        self._place: dict[str, Any] = {"root_plan_id": self.root, "plan_id": self.root}
        self._say(
            PlanStarted, title="Look", agent_name="watcher", steps=(PlannedStep(step_id=self.step),)
        )
        self._say(StepStarted, step_id=self.step, position=0)
        messages = [{"role": "user", "content": content or "Look"}]
        self._say(
            ThoughtStarted,
            step_id=self.step,
            think_act_id=self.round,
            position=0,
            messages=json.dumps(messages),
        )
        self._say(
            ThoughtRecorded,
            step_id=self.step,
            think_act_id=self.round,
            status=Status.SUCCEEDED,
            thought="I look.",
        )
        self._calls: dict[UUID, dict[str, Any]] = {}

    def call(self, name: str, arguments: str) -> UUID:
        """Return a call, which has started unless it is the third one."""
        call = new_id()
        fields = {"name": name, "arguments": arguments, "position": len(self._calls)}
        self._calls[call] = fields
        if len(self._calls) < 3:
            self.start(call)
        return call

    def start(self, call: UUID) -> None:
        self._act(ToolCallStarted, call, **self._calls[call])

    def finish(self, call: UUID, result: str) -> None:
        self._act(ToolCallFinished, call, status=Status.SUCCEEDED, result=result)

    def end(self) -> list[Event]:
        """Return all events, with the end of the run."""
        self._say(StepFinished, step_id=self.step, status=Status.SUCCEEDED)
        self._say(PlanFinished, status=Status.SUCCEEDED)
        return self._events

    def _act(self, event: Any, call: UUID, **fields: Any) -> None:
        self._say(event, step_id=self.step, think_act_id=self.round, tool_call_id=call, **fields)

    def _say(self, event: Any, **fields: Any) -> None:
        self._at += timedelta(milliseconds=500)
        self._events.append(event(at=self._at, **self._place, **fields))


def _png(width: int, height: int) -> bytes:
    """Return a grey picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\x00" + b"\x80" * width) * height)
    signature = b"\x89PNG\r\n\x1a\n"
    return signature + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
