"""docs/examples: valid, and true to the program's options and endpoints."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from reckoner_server import ROOT, program

EXAMPLES = ROOT / "docs" / "examples"


def options_of_serve():
    text = subprocess.run([program(), "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z-]+", text))


def test_kubernetes():
    path = EXAMPLES / "kubernetes.yaml"
    validate = pathlib.Path(sys.executable).parent / "kubernetes-validate"
    checked = subprocess.run([validate, "--strict", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    kinds = {one["kind"]: one for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))}
    pod = kinds["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    used = {word.split("=")[0] for word in container["command"] if word.startswith("--")}
    assert used <= options_of_serve()
    # What a probe asks is there, and the drain fits into the time that the pod gets.
    assert container["readinessProbe"]["httpGet"]["path"] == container["startupProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    drain = next(int(word.split("=")[1]) for word in container["command"] if word.startswith("--drain-timeout="))
    wait = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > drain + wait
    selector = kinds["Deployment"]["spec"]["selector"]["matchLabels"]
    assert selector == kinds["Service"]["spec"]["selector"] == pod["metadata"]["labels"]
    assert selector == kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]


def test_systemd(tmp_path):
    text = (EXAMPLES / "reckoner.service").read_text(encoding="utf-8")
    settings = dict(re.findall(r"^([A-Z][A-Za-z]+)=(.*)$", text, re.M))
    assert set(re.findall(r"--[a-z-]+", settings["ExecStart"])) <= options_of_serve()
    drain = int(re.search(r"--drain-timeout (\d+)", settings["ExecStart"]).group(1))
    assert int(settings["TimeoutStopSec"]) > drain
    assert settings["KillSignal"] == "SIGTERM"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here to verify the unit")
    unit = tmp_path / "reckoner.service"
    unit.write_text(text.replace("/usr/local/bin/reckoner", str(pathlib.Path(program()).resolve())), encoding="utf-8")
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr == ""


def test_the_command_in_the_documentation_is_the_one_that_is_tested():
    text = (ROOT / "docs" / "scale-out.md").read_text(encoding="utf-8")
    tested = (ROOT / "tests" / "scale_out" / "test_gateway.py").read_text(encoding="utf-8")
    command = re.search(r"smg launch.*?\n```", text, re.S).group(0)
    for option in re.findall(r"--[a-z-]+", command):
        assert f'"{option}"' in tested, option
    pinned = re.search(r"^smg==(.*)$", (ROOT / "tests" / "clients" / "requirements.txt").read_text(encoding="utf-8"), re.M)
    assert f"pip install smg=={pinned.group(1)}\n" in text
