"""The viewer's scripts and styles, packed as they are sent, with the texts of one language."""

import re
from pathlib import Path

import pytest

VIEWER = Path(__file__).parents[2] / "api" / "static"
KB = 1000


def _chunk(name: str) -> str:
    """Return the address of the chunk that begins with a module's name."""
    [found] = (VIEWER / "assets").glob(f"{name}-*.js")
    return f"/assets/{found.name}"


def _with_imports(chunk: str) -> set[str]:
    """Return a chunk and those that it imports before it runs."""
    code = (VIEWER / chunk[1:]).read_text(encoding="utf-8")
    return {chunk}.union(
        *(
            _with_imports(f"/assets/{each}")
            for each in re.findall(r'(?:from|import)"\./(.+?)"', code)
        )
    )


def _size(addresses: set[str]) -> int:
    return sum((VIEWER / f"{each[1:]}.gz").stat().st_size for each in addresses)


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_pages_load_little(language: str) -> None:
    document = (VIEWER / "index.html").read_text(encoding="utf-8")
    first = {*re.findall(r'="(/assets/\S+\.(?:js|css))"', document), _chunk(language)}
    listed = first | _with_imports(_chunk("run-list-view"))
    run = first | _with_imports(_chunk("run-view")) | _with_imports(_chunk("markdown"))
    overview = _with_imports(_chunk("overview-view")) - listed

    assert 0 < _size(listed) <= 150 * KB
    assert 0 < _size(run) <= 240 * KB
    assert 0 < _size(overview) <= 40 * KB
