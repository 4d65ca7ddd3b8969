"""The server: the REST API, the viewer, and the `tracer` commands that need the database.

Routes know the contract of a store and the protocols of `parts`, and no implementation.

Public modules:

- `main`: the composition, which alone knows all implementations
- `app`: the application, from its parts
- `parts`: the parts of a server as protocols
- `schemas`, `problems`: shapes and errors that routes share
- `openapi`: the contracts as files
"""
