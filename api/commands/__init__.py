"""The `tracer` commands that connect to the database, a module for each subject.

`api.main` adds them to the program.

Public modules:

- `analysts`, `deletion`, `keys`, `prices`, `search`, `spans`: commands
- `database`: the database that a command works on
"""
