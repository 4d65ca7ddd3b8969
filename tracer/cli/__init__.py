"""The `tracer` command, and its commands that work over HTTP or on local files."""

import sys

PACKAGES = ("rich", "typer")
"""The packages of the extra `cli`."""


def main() -> None:
    """Run the command. If the extra `cli` is not installed, list the commands instead."""
    try:
        from tracer.cli.main import run
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        sys.exit(_what_to_install())
    run()


def _what_to_install() -> str:
    from tracer.cli.names import COMMANDS, SERVER_COMMANDS, SERVER_GROUPS

    listed = {**SERVER_COMMANDS, **SERVER_GROUPS, **COMMANDS}
    return "\n".join(
        [
            "tracer: The command is not installed. `pip install 'tracer-lineage[cli]'` installs "
            f"{' and '.join(f'`{name}`' for name in COMMANDS)}, and `pip install "
            "'tracer-lineage[server]'` installs all of it:",
            *(f"  {name:<12}{text}" for name, text in listed.items()),
        ]
    )
