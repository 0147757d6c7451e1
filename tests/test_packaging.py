"""The package's own description, and that what the documents have people install is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from importlib.metadata import Distribution, PackagePath, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from groupcoord_spark import __version__
from tests.conftest import SAMPLE_LOGS, SampleWarehouse

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WITH_SPARK = (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["spark"])
"""What a run needs: the small installation and the extra `spark`."""
SENTENCES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "Makefile",
    *sorted((ROOT / "groupcoord_spark").rglob("*.py")),
    *sorted((ROOT / "notebooks").glob("*.py")),
]


def install_commands() -> list[str]:
    """Return every command in documents, error sentences and the Makefile that installs the project itself."""
    texts = " ".join(path.read_text(encoding="utf-8") for path in SENTENCES).replace(" --quiet --disable-pip-version-check", "")
    texts = texts.replace(" --constraint constraints.txt", "")
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
    assert copying == {"pip install '.[verify]'", "packed/bin/pip install '.[spark]'"}


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
    assert {"vega.js.gz", "page.html", "calendar.json", "groups.sql"} <= {path.name for path in data}
    ignored = subprocess.run(["git", "check-ignore", *data], cwd=ROOT, capture_output=True, text=True)
    if ignored.returncode == 128:
        pytest.skip("the tests do not run in a git repository")
    assert ignored.stdout == ""


def test_versions_that_were_tested_are_within_the_ranges() -> None:
    tested = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    for requirement in map(Requirement, WITH_SPARK):
        assert requirement.specifier.contains(tested[canonicalize_name(requirement.name)]), requirement


def test_the_changelog_begins_with_this_version_and_its_day() -> None:
    titles = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    newest = next(title for title in titles if title != "Unreleased")
    assert re.fullmatch(rf"{re.escape(PROJECT['version'])} - 20\d\d-\d\d-\d\d", newest)
    assert PROJECT["version"] == __version__


def without_editable_installation(environment: Path) -> Path:
    """Return a Python of an environment of its own that finds the packages of this one, but not the project itself."""
    venv.create(environment, symlinks=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    # Files of the kind .pth in that directory, such as the one of an editable installation, are not followed.
    (packages / "packages-of-the-tests.pth").write_text(sysconfig.get_path("purelib"))
    return environment / "bin" / "python"


@pytest.mark.process
def test_a_wheel_is_installed_and_runs(tmp_path: Path, sample_warehouse: SampleWarehouse, demo_warehouse: SampleWarehouse) -> None:
    def run(*command: str | Path) -> str:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    python = without_editable_installation(tmp_path / "environment")
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel)
    command = python.with_name("groupcoord")
    assert PROJECT["version"] in run(command, "--version").split()
    assert "environment" in run(python, "-c", "import groupcoord_spark; print(groupcoord_spark.__file__)")
    assert "app-static" in run(command, "list", "--warehouse", str(sample_warehouse.path))
    assert "rewinds" in run(command, "sql", "--print-views", "duckdb", "--warehouse", str(sample_warehouse.path))
    run(command, "report", "--warehouse", str(sample_warehouse.path), "--out", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert '"offset"' in run(command, "dump", SAMPLE_LOGS, "--quiet")
    assert "search-indexer" in run(command, "demo", "--warehouse", demo_warehouse.path, "--logs", tmp_path / "logs")
    assert (tmp_path / "logs" / "night-3" / "meta.properties").exists()


WITHOUT_SPARK = {"pyspark", "py4j"}
"""What docs/how-to/a-cluster.md removes from the environment that travels to a cluster."""


def installed_for(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return the distribution of that name and those that it needs, but those of Spark."""
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
    for requirement in WITH_SPARK:
        installed_for(Requirement(requirement).name, found)
    places = (found_file.locate() for each in found.values() for found_file in each.files or [] if is_packed(found_file))
    megabytes = sum(place.stat().st_size for place in map(Path, places) if place.exists()) / 1e6
    assert "pyarrow" in found
    assert not WITHOUT_SPARK & set(found)
    assert megabytes < 750


BLOCKED = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"delta", "pandas", "py4j", "pyspark"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
"""
"""The small installation in the environment of the tests: the packages of Spark cannot be imported."""


def small_installation(*words: str) -> subprocess.CompletedProcess[str]:
    code = f"{BLOCKED}sys.argv[1:] = {list(words)!r}\nfrom groupcoord_spark.cli import main\nmain()"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "command",
    [("nightly", str(SAMPLE_LOGS), "--warehouse", "never-made"), ("demo", "--warehouse", "never-made"), ("warm-up",)],
    ids=lambda words: words[0],
)
def test_commands_that_need_spark_name_the_extra(command: tuple[str, ...]) -> None:
    done = small_installation(*command)
    assert done.returncode == 1
    assert "This needs Spark" in done.stderr and ".[spark]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dump_is_decoded_without_spark() -> None:
    done = small_installation("dump", str(SAMPLE_LOGS), "--quiet")
    assert (done.returncode, done.stdout.count("\n")) == (0, 173)


@pytest.mark.parametrize("command", [("list",), ("describe", "--all-groups"), ("why", "app-expiring"), ("sql", "from groups"), ("expire",)])
def test_a_warehouse_is_read_without_spark(command: tuple[str, ...], sample_warehouse: SampleWarehouse) -> None:
    done = small_installation(*command, "--warehouse", str(sample_warehouse.path))
    assert done.returncode == 0, done.stderr
    assert "app-expiring" in done.stdout


def test_functions_that_need_spark_name_the_extra() -> None:
    code = f"{BLOCKED}import groupcoord_spark as gc\ntry:\n    gc.replay\nexcept gc.errors.SparkMissingError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("This needs Spark"), done.stderr


def test_no_package_of_spark_is_in_the_small_installation() -> None:
    assert not {"pyspark", "delta-spark", "pandas"} & {Requirement(each).name for each in PROJECT["dependencies"]}


PLATFORMS = sorted((ROOT / "conf" / "platforms").glob("*.txt"))


def test_continuous_integration_runs_every_platform() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["platforms"]["strategy"]["matrix"]["platform"] == [platform.stem for platform in PLATFORMS]


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda path: path.stem)
def test_no_package_of_a_platform_is_replaced(platform: Path) -> None:
    shipped = dict(re.findall(r"^([\w-]+)==(\S+)$", platform.read_text(encoding="utf-8"), re.MULTILINE))
    assert {"pyspark", "numpy", "pandas", "pyarrow"} == set(shipped)
    lines = platform.read_text(encoding="utf-8").splitlines()
    assert re.match(r"# .*: Python 3\.1[1-3], Java \d+", lines[0]) and lines[1].startswith("# https://")
    stem, _, release = platform.stem.rpartition("-")
    page = (ROOT / "docs" / "how-to" / "platforms.md").read_text(encoding="utf-8").lower()
    versions = r" \| ".join(shipped[name] for name in ("pyarrow", "pandas", "numpy"))
    assert re.search(rf"{stem}[^|]*{re.escape(release)}[^|]* \| {shipped['pyspark']} \| [^|]* \| {versions} ", page)
    for requirement in map(Requirement, WITH_SPARK):
        if requirement.name in shipped:
            assert requirement.specifier.contains(shipped[requirement.name]), requirement
