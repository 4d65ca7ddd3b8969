"""The `tracer` command, and its commands that work over HTTP or on local files.

`main` is the entry point. It also answers if the extra `cli` is missing, so nothing here loads its
packages at import.

Public modules:

- `main`: the program with all its commands
- `terminal`: messages, options and exit codes
- `run`: the outcome of `tracer run`
"""

import sys

PACKAGES = ("rich", "typer")
"""The packages of the extra `cli`."""


def main() -> None:
    """Run the command. Without the extra `cli`, print the version, or the extra that is missing."""
    try:
        from tracer.cli.main import run
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        sys.exit(_run_without_packages(sys.argv[1:]))
    run()


def _run_without_packages(arguments: list[str]) -> str | None:
    """Print the version if the arguments ask for it. Return any other answer."""
    from importlib.metadata import version

    from tracer.cli.names import COMMANDS, EXTRAS, SERVER_COMMANDS, SERVER_GROUPS
    from tracer.errors import what_to_install

    if arguments == ["--version"]:
        print(version("tracer-lineage"))
        return None
    commands = {**SERVER_COMMANDS, **SERVER_GROUPS, **COMMANDS}
    extras = {name: EXTRAS.get(name, "server") for name in commands}
    command = arguments[0] if arguments else ""
    if command in commands:
        return f"tracer: {what_to_install(f'tracer {command}', extras[command])}"
    width = max(map(len, commands)) + 2
    return "\n".join(
        [
            "tracer: Each command needs an extra, such as pip install 'tracer-lineage[server]'.",
            *(f"  {name:<{width}}{extras[name]:<13}{text}" for name, text in commands.items()),
        ]
    )
