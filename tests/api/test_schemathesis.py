"""Schemathesis holds the running server to its own OpenAPI document."""

from __future__ import annotations
