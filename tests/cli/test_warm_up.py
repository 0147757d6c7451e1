"""``groupcoord warm-up`` as a user runs it, in an environment of its own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

import pytest

import groupcoord_spark
from groupcoord_spark.cli import warm_up
from groupcoord_spark.spark import class_archive, session
from tests.cli.warehouse import groupcoord
from tests.conftest import SAMPLE_LOGS
from tests.tools.faults.running import Command

pytestmark = pytest.mark.process

COMMAND = "from groupcoord_spark.cli import main; main()"


def run_in(prefix: Path, code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Return the code in a Python whose environment is ``prefix``, as far as the archive is concerned."""
    code = f"import sys; sys.prefix = {str(prefix)!r}\n{code}"
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=300, check=False)


def mapped_by(process: int) -> str:
    with suppress(OSError):
        return Path("/proc", str(process), "maps").read_text()
    return ""


def is_as_new_as_its_makers(archive: Path) -> bool:
    makers = [Path(module.__file__ or "") for module in (warm_up, class_archive, session)]
    return archive.is_file() and archive.stat().st_mtime >= max(maker.stat().st_mtime for maker in makers)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not tell what a process has mapped")
def test_a_later_night_starts_from_the_archive_and_tells_nothing_but_stages_and_summary(tmp_path: Path) -> None:
    """In a process of its own. The archive that ``make test`` has made with the same command; where there is none, a new one, in 30 s."""
    prefix = tmp_path / "with a space"
    archive = prefix / "share" / "groupcoord_spark" / "spark-classes.jsa"
    if is_as_new_as_its_makers(class_archive.archive()):
        prefix.symlink_to(sys.prefix)
    else:
        warmed = run_in(prefix, COMMAND, "warm-up", "--quiet")
        assert (warmed.returncode, warmed.stdout, warmed.stderr) == (0, "", "")
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    assert b"parquet/VectorizedRleValuesReader" in archive.read_bytes()  # for a replay of a DataFrame over Parquet
    words = ["nightly", str(SAMPLE_LOGS), "--warehouse", str(tmp_path / "w"), "--no-history"]
    night = Command(tmp_path, words, program=("-c", f"import sys; sys.prefix = {str(prefix)!r}\n{COMMAND}"))
    assert night.wait_until(lambda: any(archive.name in mapped_by(process) for process in night.processes("java"))), night.stderr
    assert (night.wait(), night.stdout) == (0, "")
    stages, summary = night.stderr.split("\n\n")
    assert [line.split("  ")[0] for line in stages.splitlines()] == ["plan", "start Spark", "read, replay and write", "commit"]
    assert [line.split()[0] for line in summary.splitlines()] == ["Cluster", "records", "compacted", "state", "expiry", "read", "newest"]


def test_the_command_says_where_the_archive_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "make_archive", lambda progress: Path("here.jsa"))
    assert groupcoord("warm-up").output == "Later runs start from here.jsa.\n"


def test_an_archive_that_java_cannot_use_is_left_aside_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java alone, with the options that sessions have: the test above sees that a session takes them."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive = class_archive.archive()
    archive.parent.mkdir(parents=True)
    archive.write_text("of another Java")
    options = shlex.split(class_archive.options_to_use())
    assert options[0] == f"-XX:SharedArchiveFile={archive}"
    plain, beside = (
        subprocess.run(["java", *given, "--version"], capture_output=True, text=True, check=False) for given in ([], options)
    )
    assert (beside.returncode, beside.stderr) == (0, plain.stderr)
    assert beside.stdout.replace(", sharing", "") == plain.stdout.replace(", sharing", "") != ""


def test_bytecode_is_kept_where_python_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "loaded.py"
    module.write_text("ANSWER = 42\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    __import__("loaded")
    warm_up.keep_bytecode()
    modules = [module, *Path(groupcoord_spark.__file__).parent.rglob("*.py")]
    assert [path for path in modules if not Path(cache_from_source(path)).is_file()] == []


def test_an_environment_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "share").touch()
    refused = run_in(tmp_path, COMMAND, "warm-up")
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"Error: {tmp_path}/share/groupcoord_spark cannot be written: ")
