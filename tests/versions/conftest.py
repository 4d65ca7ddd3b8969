"""The API, asked in the same process."""

from tests.api.conftest import api

__all__ = ["api"]
