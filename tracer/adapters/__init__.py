"""Adapters: record the runs of other agent frameworks, and convert their tools.

Each framework has a package with `install`, which needs the extra of the same name. All are public,
also for users. `hooks` has what they share.

Public modules:

- `opentelemetry`: a span processor, which needs the extra `otel`
"""
