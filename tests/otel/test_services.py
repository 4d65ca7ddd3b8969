"""The service of a run, from the resources of its spans."""

from __future__ import annotations

from typing import Any

import pytest

from tests.otel.made_traces import agent, chat, projection_of

SERVICE = {
    "service.name": "shop",
    "service.version": "1.4",
    "deployment.environment.name": "production",
}


def services(*spans: dict[str, Any]) -> tuple[str | None, str | None, str | None]:
    run = projection_of(*spans).whole_run
    return run["service_name"], run["service_version"], run["deployment_environment"]


def with_resource(span: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    return {**span, "resource": attributes}


def test_run_has_the_service_of_its_root_agent() -> None:
    earlier = with_resource(chat(3, at=(0, 1)), **SERVICE | {"service.name": "gateway"})
    root = with_resource(agent(1, "planner", at=(1, 9)), **SERVICE)

    assert services(earlier, root, chat(2, parent=1, at=(2, 3))) == ("shop", "1.4", "production")


def test_root_agent_without_a_service_takes_the_earliest_one() -> None:
    late = with_resource(chat(2, parent=1, at=(4, 5)), **{"service.name": "late"})
    early = with_resource(chat(3, parent=1, at=(2, 3)), **{"service.name": "early"})

    assert services(agent(1, "planner", at=(1, 9)), late, early) == ("early", None, None)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"service.name": "unknown_service:python"}, (None, None, None)),
        ({"service.name": "", "service.version": 3}, (None, None, None)),
        ({"deployment.environment": "staging"}, (None, None, "staging")),
        ({"service.name": "a\0b"}, ("a␛0000b", None, None)),
    ],
)
def test_run_without_service_attributes_has_none_and_old_names_are_read(
    attributes: dict[str, Any], expected: tuple[str | None, str | None, str | None]
) -> None:
    assert services(with_resource(agent(1, "planner"), **attributes)) == expected
