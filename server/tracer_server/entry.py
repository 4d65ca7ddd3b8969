"""Entry points of the group `tracer.server`; see `tracer/cli/server.py`."""

import sys
from pathlib import Path

from api.main import commands, launcher

__all__ = ["commands", "launcher"]

# A wheel has the demonstration here, behind a package `health` that the user may have.
sys.path.append(str(Path(__file__).parent))
