"""The routes of the REST API: a module for each noun, with its routes and its schemas.

`api.app` imports the modules and lists their routers. A new module needs both there.

Public modules:

- `chat`, `diff`, `events`, `health`, `keys`, `live`, `plans`
- `prices`, `projects`, `questions`, `runs`, `sessions`, `spans`, `stats`, `tool_calls`
"""
