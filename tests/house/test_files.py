"""No file of the project contains a package registry's host or a path of one machine."""

import re

from tests.house.project_files import project_files, text_of

# In pieces: this file must pass its own test.
HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("npmmirror", "com"),
        ("deb", "debian", "org"),
        ("ghcr", "io"),
        ("docker", "io"),
    ]
]
HOST = re.compile("|".join(re.escape(host) for host in HOSTS))
MACHINE_PATH = re.compile(r"(?<![\w.}*/-])/(" + "root|work|tmp|home/[a-z]+|Users" + ")/")


def test_no_file_names_a_package_registry() -> None:
    assert _matches(HOST) == []


def test_no_file_contains_a_path_of_the_developers_machine() -> None:
    # Captures of coding agents contain names of agents that look like paths.
    found = [match for match in _matches(MACHINE_PATH) if "coding_agents/" not in match]

    assert found == []


def _matches(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:100]}"
        for path in project_files()
        for number, line in enumerate((text_of(path) or "").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_module_gets_its_logger_from_structlog() -> None:
    """structlog's own loggers print to standard output, including local variables."""
    offenders = [
        path
        for path in project_files()
        if path.parts[0] in ("api", "tracer", "examples")
        and "structlog.get_logger(" in (text_of(path) or "")
    ]

    assert offenders == []
