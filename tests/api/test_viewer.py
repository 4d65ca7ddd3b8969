"""The server serves the viewer's files, with a strict content security policy."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx2
from fastapi import FastAPI

from api import viewer
from tests.api.conftest import Api
from tests.api.projects import two_projects

RUN = "01a20033-9dce-7364-82b8-37c32d771382"


async def test_viewer_pages_have_a_strict_content_security_policy(api: Api) -> None:
    index = await api.get("/")
    for path in (
        f"/runs/{RUN}",
        f"/plans/{RUN}",
        "/tool-calls/x",
        "/tools",
        f"/compare/{RUN}",
        "/compare/a/b",
    ):
        page = await api.get(path)

        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert page.content == index.content
        policy = page.headers["content-security-policy"].split("; ")
        assert policy[:3] == ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
        assert "unsafe" not in page.headers["content-security-policy"]
        assert {"base-uri 'none'", "frame-ancestors 'none'"} <= set(policy)
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "no-referrer"


async def test_browser_gets_the_page_for_an_address_that_does_not_exist(
    database_url: str, tmp_path: Path
) -> None:
    async with two_projects(database_url, tmp_path) as doors:
        index = await doors.client.get("/")
        html = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        for path in ("/nothing", f"/runs/{RUN}/more", "/plans"):
            page = await doors.client.get(path, headers=html)
            assert (page.status_code, page.content) == (404, index.content)
            assert page.headers["content-security-policy"]
        for path, headers in (
            ("/nothing", {}),
            ("/api/nothing", html),
            ("/api", html),
            ("/v1/nothing", html),
            ("/api/runs", html),
        ):
            problem = await doors.client.get(path, headers=headers)
            assert problem.json()["code"] == "not_identified", path
        assert (await doors.client.get("/runs/", headers=html)).status_code == 307


async def test_viewer_files_are_served_under_their_file_names(api: Api) -> None:
    types = {".svg": "image/svg+xml", ".js": "text/javascript"}
    for name in viewer.FILES:
        file = await api.get(f"/{name}")

        assert file.status_code == 200
        assert file.headers["content-type"].split(";")[0] == types[Path(name).suffix]


async def test_page_without_a_viewer_build_explains_how_to_build_the_viewer(tmp_path: Path) -> None:
    app = FastAPI()
    viewer.mount(app, tmp_path)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as client:
        page = await client.get("/")

        icon = await client.get("/favicon.svg")

    assert page.status_code == 200
    assert "make setup" in page.text
    assert icon.status_code == 404


async def test_file_outside_the_viewer_folder_cannot_be_read(api: Api) -> None:
    for path in ("/..%2f..%2fpyproject.toml", "/%2e%2e/cli.py", "/assets/../../cli.py"):
        assert (await api.get(path)).status_code == 404


async def test_assets_are_cached_forever_and_compressed_if_accepted(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "index-1.js").write_text("the code")
    (tmp_path / "assets" / "index-1.js.gz").write_bytes(gzip.compress(b"the code"))
    (tmp_path / "assets" / "index-2.css").write_text("never packed")
    app = FastAPI()
    viewer.mount(app, tmp_path)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as client:
        for name, encodings, sent, text in (
            ("index-1.js", "gzip", "gzip", "the code"),
            ("index-1.js", "identity", None, "the code"),
            ("index-2.css", "gzip", None, "never packed"),
        ):
            asset = await client.get(f"/assets/{name}", headers={"accept-encoding": encodings})

            assert asset.text == text
            assert asset.headers.get("content-encoding") == sent
            assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert asset.headers["vary"] == "Accept-Encoding"
        for name in ("index-3.js", "%00", "%2e%2e", "a" * 300):
            missing = await client.get(f"/assets/{name}", headers={"accept-encoding": "gzip"})
            assert missing.status_code == 404, name
