"""Parts of every page: navigation, theme, title, icon, content policy, and escaped content."""

from __future__ import annotations

from itertools import product

import pytest
from playwright.async_api import Browser, Page, expect

from tests.journeys.axe import violations
from tests.journeys.conftest import Records, Site
from tests.sample_runs import sample_run
from tests.telling_runs import week_run
from tracer.clock import utc_now
from tracer.records import new_id
from tracer.records.events import ToolCallStarted

HTML = "<img src=x onerror='window.harmed = true'><script>window.harmed = true</script>"
HOSTILE = f"{HTML} \x1b[31mred \u202eexe.txt {'long' * 2_500}"
NIGHT = "rgb(18, 20, 23)"

PATHS = (
    "/",
    "/runs",
    "/runs?q=nothing-is-called-so",
    "/tools",
    "/tools?tool=measure",
    "/runs/{run}",
    "/runs/{other}?records=all&waterfall=on",
    "/runs/{talk}?select={answer}",
    "/sessions",
    "/sessions/{session}",
    "/sessions/nonsense",
    "/compare/{run}",
    "/compare/{run}/{other}",
    "/go/nonsense",
    "/runs/nonsense",
    "/keys",
    "/sign-in",
)
"""Every page. `{run}` and `{other}` are two runs; `{talk}` is a turn of a conversation."""

ZOOMED = 720
"""The width of a page on a screen of 1,440 pixels at a zoom of 200 %."""

QUICK_READINGS = [
    ("light", 1440, "/"),
    ("light", 1440, "/compare/{run}/{other}"),
    ("dark", 320, "/tools?tool=measure"),
]
"""`test_reading.py` has the run's page."""


async def _recorded(records: Records) -> dict[str, str]:
    """Record the runs of `PATHS`, and return their texts."""
    run = await records.record(sample_run())
    other = await records.record(sample_run(sub_plans=3, finished=False))
    session = f"session-{new_id()}"
    talk = week_run(session_id=session)
    await records.write(*talk.events)
    await records.projection.link()
    ids = {"run": run.root, "other": other.root, "talk": talk.root, "answer": talk.answer}
    return {"session": session, **{name: str(each) for name, each in ids.items()}}


async def _open(page: Page, address: str) -> None:
    await page.goto(address)
    await expect(page.get_by_role("heading").first).to_be_visible()
    await page.wait_for_load_state("networkidle")


@pytest.mark.thorough
async def test_no_page_violates_the_content_security_policy(
    page: Page, site: Site, records: Records
) -> None:
    ids = await _recorded(records)
    await page.add_init_script(
        "window.broken = []; addEventListener('securitypolicyviolation',"
        " (event) => window.broken.push(event.violatedDirective + ' ' + event.sourceFile))"
    )
    for path in PATHS:
        await _open(page, site.address + path.format(**ids))
        assert await page.evaluate("window.broken") == [], path


async def test_content_security_policy_blocks_foreign_scripts_and_styles(
    page: Page, site: Site
) -> None:
    # What the browser refuses it also reports, which would fail a page of the usual fixture.
    context = await page.context.browser.new_context() if page.context.browser else page.context
    probe = await context.new_page()
    await _open(probe, site.address)
    await probe.evaluate(
        """() => {
            const script = document.createElement('script')
            script.textContent = 'window.harmed = true'
            document.body.append(script)
            const image = document.createElement('div')
            image.innerHTML = '<img src=x onerror="window.harmed = true">'
            document.body.append(image)
        }"""
    )
    assert await probe.evaluate("window.harmed") is None
    refused = await probe.evaluate(
        "fetch('http://127.0.0.1:1/').then(() => false, (error) => String(error))"
    )
    assert "Failed to fetch" in refused
    await context.close()


@pytest.mark.parametrize(
    ("scheme", "width", "path"),
    [
        pytest.param(*reading, marks=() if reading in QUICK_READINGS else pytest.mark.thorough)
        for reading in product(("light", "dark"), (1440, ZOOMED, 320), PATHS)
    ],
)
async def test_axe_finds_no_violation_on_any_page(
    browser: Browser, site: Site, records: Records, scheme: str, width: int, path: str
) -> None:
    ids = await _recorded(records)
    context = await browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 450 if width == ZOOMED else 900},
        device_scale_factor=2 if width == ZOOMED else 1,
        locale="zh-CN" if width == 320 else "en-US",
    )
    page = await context.new_page()
    path = path.format(**ids)
    await _open(page, site.address + path)
    assert await violations(page) == [], path
    assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
    await context.close()


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "height"), [(1440, 600), (360, 800)])
async def test_no_page_has_empty_space_below_its_content(
    page: Page, site: Site, records: Records, width: int, height: int
) -> None:
    ids = await _recorded(records)
    await page.set_viewport_size({"width": width, "height": height})
    for path in (*PATHS, "/tools?tool=measure&last=all"):
        await _open(page, site.address + path.format(**ids))
        below = "document.documentElement.scrollHeight - window.innerHeight"
        assert await page.evaluate(below) <= 0, path


async def test_hostile_content_is_text_on_every_page(
    page: Page, site: Site, records: Records
) -> None:
    run, other = [
        await records.record(sample_run(title=HOSTILE, start=utc_now())) for _ in range(2)
    ]
    name = f"{HOSTILE[:300]}"
    call = ToolCallStarted(
        at=run.events[-1].at,
        root_plan_id=run.root,
        plan_id=run.root,
        step_id=run.step,
        tool_call_id=new_id(),
        name=name,
        arguments=HTML,
        position=7,
    )
    await records.write(call)
    await records.roll_up(run.root)

    pages = (
        "/runs",
        "/tools?last=all",
        f"/compare/{run.root}",
        f"/compare/{run.root}/{other.root}",
    )
    for path in pages:
        await page.goto(site.address + path)
        await expect(page.get_by_text("<img src=x").first).to_be_visible()
        text = await page.locator("main").inner_text()
        assert "\x1b" not in text, path
        assert "\u202e" not in text, path
        assert await page.evaluate("window.harmed") is None
        assert await page.locator("main :is(img:not([role]), script)").count() == 0
        assert await page.evaluate("document.documentElement.scrollWidth") <= 1440
    await page.goto(f"{site.address}/tools?last=all")
    # Another test's tool may be called nearly the same.
    await page.get_by_role("link", name="<img src=x").first.click()
    await expect(page.get_by_role("heading", name="<img src=x").first).to_be_visible()


@pytest.mark.thorough
async def test_chosen_theme_is_kept_and_applied_before_the_first_paint(
    page: Page, site: Site
) -> None:
    await page.goto(f"{site.address}/runs")
    background = "getComputedStyle(document.body).backgroundColor"
    day = await page.evaluate(background)
    await page.get_by_role("button", name="Appearance").click()
    await page.get_by_label("Theme").select_option("dark")
    assert await page.evaluate(background) == NIGHT

    # Only the page and its style are there yet.
    await page.route("**/assets/*.js", lambda route: route.abort())
    await page.reload()
    assert await page.evaluate(background) == NIGHT
    await page.unroute("**/assets/*.js")
    await page.reload()
    await page.get_by_role("button", name="Appearance").click()
    await page.get_by_label("Theme").select_option("system")
    assert await page.evaluate(background) == day
    await page.emulate_media(color_scheme="dark")
    assert await page.evaluate(background) == NIGHT


async def test_skip_link_and_page_links_work_by_keyboard(
    page: Page, site: Site, records: Records
) -> None:
    await records.record(sample_run())
    await _open(page, f"{site.address}/runs")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("searchbox", name="Search")).to_be_focused()

    tools = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Tools")
    await tools.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Tools")).to_be_visible()
    await expect(tools).to_have_attribute("aria-current", "page")
    await expect(page.get_by_role("status").filter(has_text="Tools · Tracer")).to_have_count(1)


@pytest.mark.thorough
async def test_tab_title_shows_that_a_listed_run_is_running(
    page: Page, site: Site, records: Records
) -> None:
    await records.record(sample_run(title="Signalled", finished=False))
    await page.goto(f"{site.address}/runs?q=Signalled")

    await expect(page).to_have_title("▸ Runs · Tracer")
    icon = page.locator('link[rel="icon"]')
    await expect(icon).to_have_attribute("href", "/favicon-running.svg")
    await page.get_by_role("link", name="Tools").click()
    await expect(page).to_have_title("Tools · Tracer")
    await expect(icon).to_have_attribute("href", "/favicon.svg")
