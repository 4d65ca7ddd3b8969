"""The chart: Helm lints and renders it, and Kubernetes' schemas accept the result."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house.project_files import ROOT

CHART = ROOT / "deploy" / "helm"
REQUIRED: dict[str, Any] = {
    "image": {"repository": "registry.example/tracer"},
    "database": {"secret": "tracer-database"},
}
EVERYTHING: dict[str, Any] = {
    **REQUIRED,
    "database": {"secret": "tracer-database", "directUrlKey": "direct"},
    "settings": {"TRACER_PROJECTORS": 2, "FORWARDED_ALLOW_IPS": "10.0.0.0/8"},
    "projectors": {"replicas": 3},
    "ingress": {
        "enabled": True,
        "host": "traces.example",
        "tlsSecret": "tls",
        "className": "nginx",
    },
    "serviceMonitor": {"enabled": True, "keySecret": "prometheus"},
}

# Helm's own Go code, and the schemas of Kubernetes. Too large for every developer's environment.
PACKAGES = ("helm-python-sdk==0.2.2", "kubernetes-validate==1.37.0")
RENDER = """
import json, sys
import helm_python, kubernetes_validate, yaml
chart, values = sys.argv[1], json.loads(sys.argv[2])
report = helm_python.lint(chart, values, strict=True)
found = helm_python.Chart.load(chart).render(values, name="tracer", namespace="traces")
texts = [text for name, text in found.items() if name.endswith(".yaml")]
manifests = [each for text in texts for each in yaml.safe_load_all(text) if each]
for each in manifests:
    if each["apiVersion"].partition("/")[0] != "monitoring.coreos.com":
        kubernetes_validate.validate(each, "1.37", strict=True)
print(json.dumps({"report": report, "manifests": manifests}))
"""


def values_of(text: str, prefix: str = "") -> set[str]:
    """Return the names of all values, such as `image.tag`."""
    names = set()
    for name, value in (yaml.safe_load(text) or {}).items():
        if isinstance(value, dict) and value and name != "resources":
            names |= values_of(yaml.safe_dump(value), f"{prefix}{name}.")
        else:
            names.add(prefix + name)
    return names


def test_every_value_of_the_chart_is_documented() -> None:
    page = (CHART / "README.md").read_text("utf-8")
    names = values_of((CHART / "values.yaml").read_text("utf-8"))

    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_chart_has_the_version_of_the_distributions_and_names_no_registry() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    image = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["image"]

    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert image["repository"] == ""


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has Helm."""
    uv = Path(sys.executable).parent / "uv"
    environment = tmp_path_factory.mktemp("helm") / "environment"
    python = environment / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    install = (str(uv), "pip", "install", "--quiet", "--python", str(python))
    subprocess.run([*install, *PACKAGES], check=True)
    return python


def render(helm: Path, values: dict[str, Any]) -> Any:
    done = subprocess.run(
        [helm, "-c", RENDER, CHART, json.dumps(values)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        (REQUIRED, ["Deployment", "Job", "PodDisruptionBudget", "Service"]),
        (
            EVERYTHING,
            [
                *("Deployment", "Deployment", "Ingress", "Job"),
                *("PodDisruptionBudget", "Service", "ServiceMonitor"),
            ],
        ),
        (
            {**REQUIRED, "migration": {"enabled": False}},
            ["Deployment", "PodDisruptionBudget", "Service"],
        ),
    ],
    ids=["required", "everything", "without migration"],
)
def test_helm_lints_and_renders_the_chart(
    helm: Path, values: dict[str, Any], kinds: list[str]
) -> None:
    found = render(helm, values)

    assert found["report"]["errors"] == []
    assert [each for each in found["report"]["messages"] if each["severity"] > 1] == []
    assert sorted(each["kind"] for each in found["manifests"]) == kinds
    deployments = [each for each in found["manifests"] if each["kind"] == "Deployment"]
    pods = [each["spec"]["template"]["spec"] for each in deployments]
    commands = {each["containers"][0]["name"]: each["containers"][0]["args"] for each in pods}
    assert ("projector" in commands) == ("projectors" in values)
    [pod] = [each for each in pods if each["containers"][0]["name"] == "server"]
    [container] = pod["containers"]
    assert container["image"].startswith("registry.example/tracer:")
    assert pod["securityContext"]["runAsUser"] == 8420
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert ("--no-migrate" in container["args"]) == ("Job" in kinds)
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "tracer-database"


@pytest.mark.thorough
def test_chart_without_image_or_database_is_refused(helm: Path) -> None:
    done = subprocess.run([helm, "-c", RENDER, CHART, "{}"], capture_output=True, text=True)

    assert done.returncode != 0
    assert "image" in done.stderr
