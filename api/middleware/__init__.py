"""ASGI middleware, one class a file; `api.app` lists it in its order."""
