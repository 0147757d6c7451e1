"""What is said of the package, and that what the documents tell people to install is there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import Distribution, PackagePath, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SENTENCES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "Makefile",
    *sorted((ROOT / "groupcoord_spark").rglob("*.py")),
    *sorted((ROOT / "notebooks").glob("*.py")),
]


def install_commands() -> list[str]:
    """Every command in documents, error sentences and the Makefile that installs the project itself."""
    texts = " ".join(path.read_text(encoding="utf-8") for path in SENTENCES).replace(" --quiet --disable-pip-version-check", "")
    return re.findall(r"[\w./$()]*pip install[^\n`]*? '?\.(?:\[\w+\]'|(?=[`\s]))", texts)


def test_extras_were_named_of_a_package_that_is_not_on_pypi() -> None:
    commands = install_commands()
    assert len(commands) >= 6
    extras = {extra for command in commands for extra in re.findall(r"\[(\w+)\]", command)}
    assert {"verify", "notebooks", "dev"} <= extras <= set(PROJECT["optional-dependencies"])
    assert not [path for path in SENTENCES if re.search(r"pip install\W+groupcoord", path.read_text(encoding="utf-8"))]


def test_no_extra_replaces_the_editable_installation_by_a_copy() -> None:
    copying = {command for command in install_commands() if "--editable" not in command}
    # the one that the tutorial warns of, and an environment of its own, which is to be packed
    assert copying == {"pip install '.[verify]'", "packed/bin/pip install ."}


@pytest.mark.parametrize("name", ["license", "license-files", "authors", "classifiers", "readme", "keywords"])
def test_the_package_says_whose_it_is_and_what_for(name: str) -> None:
    assert PROJECT[name]


def test_the_source_distribution_has_the_documentation() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert {"docs", "mkdocs.yml", "README.md"} <= set(build["targets"]["sdist"]["include"])


def test_the_licence_lies_beside_the_package() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8").splitlines()[1]


def test_the_wheel_has_what_the_report_reads_beside_its_code() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["groupcoord_spark"]}  # every file of the package, but for what git ignores
    report = ROOT / "groupcoord_spark" / "report"
    data = [path for folder in ("browser", "charts", "sql") for path in (report / folder).iterdir()]
    assert {"vega.js", "page.html", "calendar.json", "groups.sql"} <= {path.name for path in data}
    ignored = subprocess.run(["git", "check-ignore", *data], cwd=ROOT, capture_output=True, text=True)
    if ignored.returncode == 128:
        pytest.skip("the tests do not run in a git repository")
    assert ignored.stdout == ""


WITHOUT_SPARK = {"pyspark", "py4j", "delta-spark"}
"""What docs/how-to/a-cluster.md removes from the environment that travels to a cluster."""


def installed_for(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """The distribution of that name and those that it needs, but those of Spark."""
    normal = canonicalize_name(name)
    if normal not in found and normal not in WITHOUT_SPARK:
        found[normal] = distribution(name)
        for requirement in map(Requirement, found[normal].requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                installed_for(requirement.name, found)
    return found


def is_packed(file: PackagePath) -> bool:
    return file.suffix != ".pyc" and "tests" not in file.parts


def test_the_environment_without_spark_is_lean() -> None:
    """Its files take 694 MB and compress to 229 MB; to compress them here would take ten seconds. Spark and its jars are 490 MB more."""
    found: dict[str, Distribution] = {}
    for requirement in PROJECT["dependencies"]:
        installed_for(Requirement(requirement).name, found)
    places = (found_file.locate() for each in found.values() for found_file in each.files or [] if is_packed(found_file))
    megabytes = sum(place.stat().st_size for place in map(Path, places) if place.exists()) / 1e6
    assert "pyarrow" in found
    assert not WITHOUT_SPARK & set(found)
    assert megabytes < 750
