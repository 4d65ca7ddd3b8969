"""LangChain and LangGraph: record their runs, and convert tools in both directions.

`install` records the runs. `from_langchain` converts a LangChain tool to a tool of Tracer's
runtime, and `to_langchain` does the reverse. The two converters need the extra `runtime`.
"""

from typing import TYPE_CHECKING

from tracer.errors import missing_extra

try:
    from tracer.adapters.langchain.runs import RecordingHandler, install
except ImportError as error:
    raise missing_extra(__name__, "langchain", error) from error

if TYPE_CHECKING:
    from tracer.adapters.langchain.tools import from_langchain, to_langchain
else:

    def __getattr__(name: str) -> object:
        """Import the converters when they are used, because they need the extra `runtime`."""
        if name not in ("from_langchain", "to_langchain"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from tracer.adapters.langchain import tools
        except ModuleNotFoundError as error:
            raise missing_extra(f"{__name__}.{name}", "langchain,runtime", error) from error
        return getattr(tools, name)


__all__ = ["RecordingHandler", "from_langchain", "install", "to_langchain"]
