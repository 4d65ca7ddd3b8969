"""Tracer records what an LLM agent did, and which tool call started which sub-plan.

The names in `__all__` are the public interface. Import them from here: `from tracer import tool`.
`__init__.pyi` is their table. The modules in `tracer.adapters`, one for each agent framework, and
`tracer.testing` are public, too. Everything else may change in any version, for example the classes
of results and of rare errors. Import it from its module: `from tracer.errors import TracerError`.

Names are loaded on first use (PEP 562), so that `import tracer` loads no web framework and no
database driver.
"""

from importlib import import_module
from pathlib import Path

_LINES = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines()
_MODULES = {line.split()[-1]: line.split()[1] for line in _LINES if line.startswith("from ")}
"""The module of each public name."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    """Import a public name on first use, and return it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tracer."):
            raise
        from tracer.errors import missing_extra

        raise missing_extra(f"tracer.{name}", "runtime", error) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
