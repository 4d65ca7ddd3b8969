"""Name the extra that a feature needs and that is not installed."""

from __future__ import annotations


def missing_extra(feature: str, extras: str, cause: ImportError) -> ImportError:
    """Return the error for a feature whose extra is not installed.

    Args:
        feature: The name or the command that needs the extra.
        extras: The extra; several are separated by commas.
        cause: The error of the import that failed.
    """
    return ImportError(f"{what_to_install(feature, extras)} ({cause})", name=cause.name)


def what_to_install(feature: str, extras: str) -> str:
    """Return a sentence that names the extras of a feature, and the command that installs them."""
    names = " and ".join(f"`{each}`" for each in extras.split(","))
    noun = "extras" if "," in extras else "extra"
    return f"`{feature}` needs the {noun} {names}: pip install 'tracer-lineage[{extras}]'"
