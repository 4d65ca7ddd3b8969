"""Run the newest coding agents against scripted models, with Tracer as the target: `make agents`.

Not part of the tests: it installs programs from npm. docs/contributing/coding-agents.md describes
it.
"""
