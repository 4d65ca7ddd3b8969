"""The `tracer` command for its tests."""

from tests.api.conftest import home, tracer

__all__ = ["home", "tracer"]
