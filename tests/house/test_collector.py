"""The configurations of the page on collectors are consistent with each other and the server.

`tests/torture/test_collector.py` sends data through a collector.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.house.project_files import ROOT
from tracer.otel.dialects import DIALECTS
from tracer.settings import LOCAL_SERVER

PAGE = (ROOT / "docs" / "guides" / "collector.md").read_text("utf-8")
[MIB] = re.findall(r"The server accepts up to (\d+) MiB", PAGE)
[MIB] = re.findall(r"The server accepts up to (\d+) MiB", PAGE)
COMPLETE, STORAGE, FILTER = (
    yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
)


def _merged(base: Any, addition: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(addition, dict):
        return addition
    return base | {name: _merged(base.get(name), each) for name, each in addition.items()}


def test_each_component_of_a_pipeline_is_defined() -> None:
    config = _merged(_merged(COMPLETE, STORAGE), FILTER)
    used = {
        (kind, name)
        for pipeline in config["service"]["pipelines"].values()
        for kind, names in pipeline.items()
        for name in names
    }

    assert used == {
        (kind, name) for kind in ("receivers", "processors", "exporters") for name in config[kind]
    }
    assert config["service"]["extensions"] == list(config["extensions"])


def test_batches_are_smaller_than_the_largest_body() -> None:
    exporter = COMPLETE["exporters"]["otlp_http"]

    assert exporter["endpoint"] == LOCAL_SERVER
    assert exporter["sending_queue"]["sizer"] == "bytes"
    assert exporter["sending_queue"]["batch"]["max_size"] < int(MIB) * 2**20


def test_filter_keeps_the_log_records_that_dialects_read_without_a_trace() -> None:
    [condition] = FILTER["processors"]["filter/logs"]["logs"]["log_record"]
    [kept] = re.findall(r'not IsMatch\(instrumentation_scope\.name, "(.*)"\)', condition)
    scopes = {scope for dialect in DIALECTS for scope in dialect.sessions}

    assert scopes
    assert [each for each in scopes if not re.match(kept, each)] == []
    assert kept.count("|") + 1 == len(scopes)
