import re
from pathlib import Path

from tests.house.project_files import project_files, text_of

SAYS_NOTHING = re.compile(
    "(utils?|helpers?|commons?|miscs?|bases?|managers?|services?|handlers?|factor(y|ies)"
    "|impls?|constants?|cores?)",
    re.IGNORECASE,
)
SOURCES = {".py", ".ts", ".vue", ".sh", ".css"}
LONGEST = 400

# In pieces: this file is held to its own rule.
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
A_HOST = re.compile("|".join(re.escape(host) for host in HOSTS))
A_PATH_OF_A_MACHINE = re.compile(r"(?<![\w.}*/-])/(" + "root|work|tmp|home/[a-z]+|Users" + ")/")


def test_every_file_name_says_what_the_file_is_about() -> None:
    assert [
        str(path)
        for path in project_files()
        if any(SAYS_NOTHING.fullmatch(Path(part).stem) for part in path.parts)
    ] == []


def test_no_source_file_is_too_long_to_be_about_one_thing() -> None:
    assert {
        str(path): lines
        for path in project_files()
        if path.suffix in SOURCES and not path.name.endswith(".d.ts")  # generated
        if (lines := (text_of(path) or "").count("\n")) > LONGEST
    } == {}


def test_no_file_names_a_package_registry() -> None:
    assert _places(A_HOST) == []


def test_no_file_holds_a_path_of_the_machine_it_was_written_on() -> None:
    assert _places(A_PATH_OF_A_MACHINE) == []


def _places(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:100]}"
        for path in project_files()
        for number, line in enumerate((text_of(path) or "").splitlines(), 1)
        if pattern.search(line)
    ]


def test_every_logger_is_ours() -> None:
    """A logger of structlog's own prints to standard output, local variables included."""
    strangers = [
        path
        for path in project_files()
        if path.parts[0] in ("api", "tracer", "examples")
        and "structlog.get_logger(" in (text_of(path) or "")
    ]

    assert strangers == []
