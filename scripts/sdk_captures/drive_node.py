"""Drive one SDK of JavaScript through one scenario, and store its exports and the truth of the run.

PROJECT is a folder in which npm has installed the SDK, for example `ai@7`:

    python scripts/sdk_captures/drive_node.py vercel_v7 parallel FOLDER PROJECT
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from scenarios import DELEGATES, PARAMETERS, SCENARIOS, TOOLS, truth_of
from scripted_model import MODEL, serve_model, serve_receiver

DRIVERS = {
    "mastra": ("with_mastra.mjs", ("@mastra/core", "@mastra/otel-exporter")),
    "vercel_v5": ("with_vercel.mjs", ("ai",)),
    "vercel_v6": ("with_vercel.mjs", ("ai",)),
    "vercel_v7": ("with_vercel.mjs", ("ai", "@ai-sdk/otel")),
    "vercel_v7_stream": ("with_vercel.mjs", ("ai", "@ai-sdk/otel")),
}
"""The program of each SDK, and the packages whose versions are stored."""


def main(sdk: str, name: str, folder: Path, project: Path) -> None:
    """Run the scenario."""
    for stored in folder.glob("*"):
        stored.unlink()
    scenario = SCENARIOS[name]
    model, _ = serve_model(scenario)
    receiver, _ = serve_receiver(folder)
    program, packages = DRIVERS[sdk]
    # Node finds packages from the folder of the program.
    for source in (program, "agents.mjs"):
        shutil.copy(Path(__file__).parent / source, project / source)
    run = {
        "sdk": sdk,
        "prompt": scenario.prompt,
        "model": MODEL,
        "modelUrl": model,
        "receiver": receiver,
        "tools": TOOLS,
        "delegates": DELEGATES,
        "parameters": PARAMETERS,
    }
    done = subprocess.run(
        ["node", program, json.dumps(run)], cwd=project, check=True, stdout=subprocess.PIPE
    )
    answer = done.stdout.decode().strip()
    assert answer == scenario.turns[scenario.prompt][-1].text, answer
    versions = {package: _version(project, package) for package in packages}
    truth = {"sdk": sdk, "versions": versions, **truth_of(scenario)}
    (folder / "expected.json").write_text(json.dumps(truth, indent=1) + "\n")
    print(folder.name, len([*folder.glob("*.gz")]), "requests")


def _version(project: Path, package: str) -> str:
    manifest = json.loads((project / "node_modules" / package / "package.json").read_text())
    return str(manifest["version"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
