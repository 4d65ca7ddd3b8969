"""LangChain and LangGraph: their runs recorded, and tools in both directions.

`install` records the runs. `from_langchain` makes a tool of ours from one of LangChain's, and
`to_langchain` the reverse.
"""

from tracer.adapters.langchain.runs import RunRecorder, install
from tracer.adapters.langchain.tools import from_langchain, to_langchain

__all__ = ["RunRecorder", "from_langchain", "install", "to_langchain"]
