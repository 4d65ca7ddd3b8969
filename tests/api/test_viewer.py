"""The server hands out the viewer, and lets it do nothing but talk to the server."""

from __future__ import annotations

from pathlib import Path

import httpx2
from fastapi import FastAPI

from api import viewer
from tests.api.conftest import Api


async def test_each_page_of_the_viewer_is_the_same_document_under_a_strict_policy(api: Api) -> None:
    for path in ("/", "/runs/01a20033-9dce-7364-82b8-37c32d771382", "/tool-calls/x"):
        page = await api.get(path)

        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"


async def test_a_viewer_that_was_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    app = FastAPI()
    viewer.mount(app, tmp_path)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as client:
        page = await client.get("/")

    assert page.status_code == 200
    assert "make setup" in page.text


async def test_a_path_outside_the_viewer_can_not_be_read(api: Api) -> None:
    for path in ("/..%2f..%2fpyproject.toml", "/%2e%2e/cli.py", "/assets/../../cli.py"):
        assert (await api.get(path)).status_code == 404
