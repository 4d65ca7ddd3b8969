"""Run make targets, each even if another one failed, and report the result of each.

    python -m scripts.run_parts MAKE TARGET...

The last target runs alone and its output appears at once. The others run two at a time, and the
output of each appears when it has ended.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import NamedTuple


class Result(NamedTuple):
    """How a target ended."""

    target: str
    has_passed: bool
    seconds: float
    output: str


def run(make: str, target: str, is_captured: bool = True) -> Result:
    """Run a target."""
    began = monotonic()
    done = subprocess.run(
        [make, "--no-print-directory", target],
        stdout=subprocess.PIPE if is_captured else None,
        stderr=subprocess.STDOUT,
        check=False,
    )
    output = (done.stdout or b"").decode(errors="replace")
    return Result(target, done.returncode == 0, monotonic() - began, output)


def main(make: str, *targets: str) -> int:
    """Run the targets; return the exit status: 0 if all passed."""
    results = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for result in pool.map(partial(run, make), targets[:-1]):
            print(result.output, end="", flush=True)
            results.append(result)
    results.append(run(make, targets[-1], is_captured=False))
    print(f"\n{'part':<22} {'result':<6} seconds")
    for each in results:
        print(f"{each.target:<22} {'passed' if each.has_passed else 'FAILED'} {each.seconds:7.0f}")
    failed = sum(not each.has_passed for each in results)
    print(f"Parts: {len(results) - failed} passed, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
