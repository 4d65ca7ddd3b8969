"""Records what an LLM agent did, and which tool call opened which sub-plan."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.client.connecting import connect
    from tracer.client.tracing import Tracing
    from tracer.client.work import Chosen

__all__ = ["Chosen", "Tracing", "connect"]

_PLACES = {
    "Chosen": "tracer.client.work",
    "Tracing": "tracer.client.tracing",
    "connect": "tracer.client.connecting",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Return a public name. Not before it is wanted: each module imports this one first."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_PLACES[name]), name)
