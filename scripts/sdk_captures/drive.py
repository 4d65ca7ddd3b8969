"""Drive one SDK through one scenario, and store its exports and the truth of the run.

Run with the Python of an environment that has the SDK:

    python scripts/sdk_captures/drive.py langfuse parallel FOLDER
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

from scenarios import SCENARIOS, truth_of
from scripted_model import serve_model, serve_receiver


def main(sdk: str, name: str, folder: Path) -> None:
    """Run the scenario. The driver `with_SDK.py` exports to the receiver until `close` returns."""
    for stored in folder.glob("*"):
        stored.unlink()
    scenario = SCENARIOS[name]
    model, _ = serve_model(scenario)
    receiver, _ = serve_receiver(folder)
    driver = importlib.import_module(f"with_{sdk}")
    run, close = driver.start(receiver, model)
    answer = asyncio.run(run(scenario))
    close()
    assert answer == scenario.turns[scenario.prompt][-1].text, answer
    truth = {
        "sdk": sdk,
        "versions": {package: version(package) for package in driver.PACKAGES},
        **truth_of(scenario),
    }
    (folder / "expected.json").write_text(json.dumps(truth, indent=1) + "\n")
    print(folder.name, len([*folder.glob("*.gz")]), "requests")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
