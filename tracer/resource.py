"""The OpenTelemetry resource of this process: the name, version and environment of its service.

The rules are those of the OpenTelemetry specification, "Resource SDK" and "General SDK
configuration". The `OTELResourceDetector` of the SDK implements them, too. It is not used, because
a program that only records events need not install the SDK.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict
from urllib.parse import unquote

SERVICE_ATTRIBUTES = {
    "service_name": "service.name",
    "service_version": "service.version",
    "deployment_environment": "deployment.environment.name",
}
"""The resource attribute of each field of a run."""

OLD_ENVIRONMENT = "deployment.environment"
"""The name of `deployment.environment.name` before version 1.27 of the semantic conventions."""

UNKNOWN_SERVICE = "unknown_service"
"""The beginning of the service name that SDKs set if the user configured no name."""


class Service(TypedDict):
    """The fields of a run that describe its service. An unknown field is None."""

    service_name: str | None
    service_version: str | None
    deployment_environment: str | None


NO_SERVICE = Service(service_name=None, service_version=None, deployment_environment=None)


def service_of(resource: Mapping[str, Any]) -> Service:
    """Return the service that resource attributes describe. Only values that are text are used."""
    name, version, environment = (_text(resource.get(key)) for key in SERVICE_ATTRIBUTES.values())
    return Service(
        service_name=None if name is None or name.startswith(UNKNOWN_SERVICE) else name,
        service_version=version,
        deployment_environment=environment or _text(resource.get(OLD_ENVIRONMENT)),
    )


def service_of_environment() -> Service:
    """Return the service that the environment variable `OTEL_RESOURCE_ATTRIBUTES` describes.

    `OTEL_SERVICE_NAME` has precedence for the name of the service.
    """
    # Read for each run, because programs set these variables after they import `tracer`.
    pairs = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    resource = {
        key.strip(): unquote(value.strip())
        for key, equals, value in (pair.partition("=") for pair in pairs)
        if equals
    }
    if name := os.environ.get("OTEL_SERVICE_NAME"):
        resource["service.name"] = name
    return service_of(resource)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
