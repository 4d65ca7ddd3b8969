"""The reference pages list exactly the requests, commands and settings that exist."""

from __future__ import annotations

import json
import re

import typer

from tests.house.project_files import ROOT
from tracer.cli.main import commands
from tracer.settings import Settings

REFERENCE = ROOT / "docs" / "reference"


def test_rest_reference_lists_every_operation() -> None:
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    served = {f"{method.upper()} {path}" for path, item in paths.items() for method in item}
    page = (REFERENCE / "rest.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `([A-Z]+ /[^`]*)`", page, re.MULTILINE)) == served


def test_commands_reference_lists_every_command() -> None:
    names = set(typer.main.get_group(commands).commands)
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `tracer ([a-z-]+)", page, re.MULTILINE)) == names


def test_settings_reference_lists_every_environment_variable() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")

    listed = set(re.findall(r"`(TRACER_[A-Z_]+)`", page))
    assert {f"TRACER_{name.upper()}" for name in Settings.model_fields} <= listed
