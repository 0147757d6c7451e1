"""The files in conf/schedule, the Dockerfile and compose.yaml: read by a parser of their kind; the commands in them take their options."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from groupcoord_spark.cli.commands import COMMANDS, main
from tests.test_documentation import ROOT

FOLDER = ROOT / "conf" / "schedule"
MANIFESTS = sorted((*FOLDER.glob("*.yaml"), *FOLDER.glob("*.yml")))


def takes(words: list[str]) -> None:
    """Parses a command line without running it. click fails for an option or a word that the command does not have."""
    command = main.get_command(click.Context(main), words[0])  # type: ignore[attr-defined]
    assert command is not None, words
    command.make_context(words[0], list(words[1:]))


def found(value: Any, name: str) -> list[Any]:
    """Return every value under that name, at any depth."""
    if isinstance(value, dict):
        here = [value[name]] if name in value else []
        return here + [one for inner in value.values() for one in found(inner, name)]
    return [one for inner in value for one in found(inner, name)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", ["groupcoord.service", "groupcoord.cron", "airflow_dag.py"])
def test_commands_take_their_options(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8").replace("{WAREHOUSE}", "warehouse")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    commands = [one for line in lines for one in re.findall(r"(?:^|[\"/ ])groupcoord ((?:nightly|morning) [^&\"]+)", line)]
    assert {command.split()[0] for command in commands} == {"nightly", "morning"}
    for command in commands:
        takes(shlex.split(command))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_yaml_and_their_arguments_are_options_of_nightly(path: Path) -> None:
    manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    arguments = [*found(manifest, "args"), *found(manifest, "arguments"), *found(manifest, "parameters")]
    assert len(arguments) == 1
    words = [str(word) for word in arguments[0]]
    takes(words if words[0] in COMMANDS else ["nightly", *words])
    schedules = [*found(manifest, "schedule"), *found(manifest, "quartz_cron_expression")]
    assert any(isinstance(one, str) and len(one.split()) in (5, 6) for one in schedules)


def test_the_dag_is_python_with_two_tasks_in_order() -> None:
    tree = ast.parse((FOLDER / "airflow_dag.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "BashOperator"]
    ids = [keyword.value.value for call in calls for keyword in call.keywords if keyword.arg == "task_id"]  # type: ignore[attr-defined]
    assert ids == ["nightly", "morning"]


def test_the_line_of_cron_has_five_times_a_user_and_no_percent_sign() -> None:
    lines = [line for line in (FOLDER / "groupcoord.cron").read_text(encoding="utf-8").splitlines() if line[0].isdigit()]
    assert len(lines) == 1 and "%" not in lines[0]  # cron ends the command at one
    assert lines[0].split()[:6] == ["0", "3", "*", "*", "*", "kafka"]


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on this machine")
    for unit in ("groupcoord.service", "groupcoord.timer"):
        text = (
            (FOLDER / unit)
            .read_text(encoding="utf-8")
            .replace("/opt/groupcoord/bin/groupcoord", "/bin/true")
            .replace("User=kafka", "User=root")
        )
        (tmp_path / unit).write_text(text, encoding="utf-8")
    command = ["systemd-analyze", "verify", str(tmp_path / "groupcoord.service"), str(tmp_path / "groupcoord.timer")]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"SYSTEMD_LOG_LEVEL": "warning", "PATH": "/usr/bin:/bin"}
    )
    complaints = [line for line in result.stderr.splitlines() if str(tmp_path) in line or "groupcoord." in line]
    assert (result.returncode, complaints) == (0, [])


def test_the_page_names_every_file() -> None:
    page = (ROOT / "docs" / "how-to" / "schedule.md").read_text(encoding="utf-8")
    assert {path.name for path in FOLDER.iterdir()} == set(re.findall(r"`conf/schedule/([^`]+)`", page))


def test_compose_shows_the_demo_on_the_board_of_grafana() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    services = compose["services"]
    for name in ("demo", "metrics"):
        takes(services[name]["command"])
    board = json.loads((ROOT / "conf/grafana/groupcoord.json").read_text())
    assert f"/d/{board['uid']}" in (ROOT / "compose.yaml").read_text()
    for service in services.values():
        assert {config["source"] for config in service.get("configs", ())} <= set(compose["configs"])
        mounted = [volume.split(":")[0] for volume in service.get("volumes", ())]
        assert [place for place in mounted if place not in compose["volumes"] and not (ROOT / place).exists()] == []
        assert "build" in service or re.search(r":v?\d+\.\d+\.\d+$", service["image"])
    prometheus = yaml.safe_load(compose["configs"]["prometheus"]["content"])
    (target,) = found(prometheus, "targets")[0]
    assert target.split(":")[0] in services


def test_the_image_has_the_files_that_the_build_copies() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sent = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(" ".join(copied).split()) == sorted(sent)
    assert [name for name in sent if not (ROOT / name).exists()] == []
