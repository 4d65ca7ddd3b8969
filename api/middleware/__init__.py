"""ASGI middleware, one class per file. `api.app` installs them and determines their order."""
