"""Damages a warehouse of three runs in every way that a disk or a hand can, runs every command over it, and counts the faults.

After each damage the commands that read and the fourth night must end with exit code 0, or with 1 and one sentence. A night that ends
with 0 leaves the rows of undisturbed nights in every table that was not damaged, and in a damaged table of the state. Where the sentence
says how to go on, that is done, and the run must then be right. ``python -m tests.tools.faults.damage``
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.declaration import WriteMode
from tests.cli.warehouse import groupcoord
from tests.conftest import GOLDEN
from tests.running import tables_of

AS_OF_MS = (1795231254570, 1795231276109, 1795231315838, 1795231342658)
GROUP = "daily-fixed"

READING: Mapping[str, Sequence[str]] = {
    "list": ("list", "--state"),
    "describe": ("describe", "--all-groups"),
    "members": ("describe", "--all-groups", "--members", "--verbose"),
    "why": ("why", "--group", GROUP),
    "timeline": ("timeline", "--group", GROUP),
    "sql": ("sql", "SELECT count(*) FROM committed_offsets"),
    "sql of history": ("sql", "SELECT count(*) FROM offset_commits"),
    "runs": ("runs",),
    "diff": ("diff",),
    "warnings": ("warnings",),
    "coverage": ("coverage",),
    "expire": ("expire",),
    "export-offsets": ("export-offsets", "--group", GROUP),
    "maintain --dry-run": ("maintain", "--dry-run"),
}

Tables = Mapping[str, list[str]]
"""Table -> its rows as sorted text."""

Damage = Callable[[Path], object]


def _entries(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def _newest_data_file(table: Path) -> Path | None:
    return max(table.glob("cluster=*/*.parquet"), key=lambda path: (path.name, path.stat().st_mtime_ns), default=None)


def _cut(path: Path | None, share: float) -> None:
    if path is not None:
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def _overwrite(path: Path | None, content: bytes) -> None:
    if path is not None:
        path.write_bytes(content)


def _flip(path: Path | None) -> None:
    """Flip one bit in the middle of the file."""
    if path is not None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)


def _unlink(path: Path | None) -> None:
    if path is not None:
        path.unlink()


def _last_checkpoint(table: Path, content: str) -> None:
    (table / "_delta_log" / "_last_checkpoint").write_text(content)


def _checkpoint_of_garbage(table: Path) -> None:
    version = int(_entries(table)[-1].stem)
    (table / "_delta_log" / f"{version:020}.checkpoint.parquet").write_bytes(b"PAR1 nothing PAR1")
    _last_checkpoint(table, f'{{"version":{version},"size":3}}')


DAMAGES: Mapping[str, Damage] = {
    "table deleted": shutil.rmtree,
    "table is an empty directory": lambda table: (shutil.rmtree(table), table.mkdir()),
    "table is a file": lambda table: (shutil.rmtree(table), table.write_text("x")),
    "rows deleted": lambda table: [shutil.rmtree(each) for each in table.glob("cluster=*")],
    "data file deleted": lambda table: _unlink(_newest_data_file(table)),
    "data file cut": lambda table: _cut(_newest_data_file(table), 0.5),
    "data file empty": lambda table: _cut(_newest_data_file(table), 0),
    "data file is garbage": lambda table: _overwrite(_newest_data_file(table), b"garbage" * 300),
    "a bit of a data file flipped": lambda table: _flip(_newest_data_file(table)),
    "log deleted": lambda table: shutil.rmtree(table / "_delta_log"),
    "first entry removed": lambda table: _entries(table)[0].unlink(),
    "entry between removed": lambda table: _entries(table)[2].unlink(),
    "newest entry removed": lambda table: _entries(table)[-1].unlink(),
    "newest entry cut": lambda table: _cut(_entries(table)[-1], 0.5),
    "newest entry empty": lambda table: _cut(_entries(table)[-1], 0),
    "newest entry is garbage": lambda table: _overwrite(_entries(table)[-1], b"\xff\x00garbage\n" * 9),
    "newest entry is another JSON": lambda table: _overwrite(_entries(table)[-1], b'{"add": 7}\n'),
    "entry between is garbage": lambda table: _overwrite(_entries(table)[2], b"\xff\x00garbage\n" * 9),
    "_last_checkpoint is garbage": lambda table: _last_checkpoint(table, "garbage"),
    "_last_checkpoint is empty": lambda table: _last_checkpoint(table, ""),
    "_last_checkpoint names nothing": lambda table: _last_checkpoint(table, '{"version":2,"size":3}'),
    "checkpoint is garbage": _checkpoint_of_garbage,
}


def night(warehouse: Path, number: int, *options: str) -> tuple[int, str]:
    """Exit code and stderr of one of the golden nights, from 1 on."""
    arguments = ("--warehouse", str(warehouse), "--cluster", "nights", "--quiet", "--as-of", str(AS_OF_MS[number - 1]))
    return called("nightly", str(GOLDEN / "nights" / str(number) / "logs"), *arguments, *options)


def called(*arguments: str) -> tuple[int, str]:
    """Exit code and stderr of a command; -1 and the exception where it ended with a traceback."""
    try:
        result = groupcoord(*arguments)
    except BaseException as e:  # a panic of delta-rs is not an Exception
        if isinstance(e, KeyboardInterrupt):
            raise
        return -1, repr(e)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return -1, repr(result.exception)
    return result.exit_code, result.stderr


def is_one_sentence(code: int, stderr: str) -> bool:
    """Return whether a command ended well, or with one line that says the fault. Remarks of readers on stderr are not errors."""
    if code == 0:
        return True
    lines = stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("Error: ")]
    return code == 1 and len(errors) == 1 and lines[-1] == errors[0] and len(errors[0]) < 900


def compared(warehouse: Path, expected: Sequence[Tables], but: set[str]) -> list[str]:
    """Return the tables whose rows are the ones of no undisturbed night."""
    rows = tables_of(warehouse, "nights", but=(*but, "runs"))
    different = (name for name in rows if all(rows[name] != tables[name] for tables in expected))
    return [f"{name}: {len(rows[name])} rows, expected {len(expected[0][name])} others" for name in different]


def faults_of(
    warehouse: Path, whole: Path, table: str, expected: Sequence[Tables], commands: Mapping[str, Sequence[str]] = READING
) -> Iterator[str]:
    """Yield the faults of what the commands and the next night say and do, after a table was damaged; at last how the run ended."""
    for name, arguments in commands.items():
        code, stderr = called(*arguments, "--warehouse", str(warehouse))
        if not is_one_sentence(code, stderr):
            yield f"{name} ended with {code}: {stderr.strip()[-300:]}"
    lossy = {table} if TABLES[table].write is WriteMode.APPENDED else set()
    code, stderr = night(warehouse, 4)
    if not is_one_sentence(code, stderr):
        yield f"night ended with {code}: {stderr.strip()[-300:]}"
    if code == 1:
        if "Restore it from a copy" not in stderr and "into another directory" not in stderr:
            yield f"night does not say how to go on: {stderr}"
        if (way := re.search(r"delete the directory (\S+):", stderr)) and Path(way[1]).is_file():
            Path(way[1]).unlink()
        elif way:
            shutil.rmtree(way[1])
        elif (warehouse / table).is_file():
            (warehouse / table).unlink()
            shutil.copytree(whole / table, warehouse / table)
        else:
            shutil.rmtree(warehouse / table, ignore_errors=True)
            shutil.copytree(whole / table, warehouse / table)
            lossy = set()
        code, stderr = night(warehouse, 4)
        if code:
            yield f"night after the way out ended with {code}: {stderr.strip()[-300:]}"
    if code == 0:
        try:
            for different in compared(warehouse, expected, lossy):
                yield f"wrong rows after the night: {different}"
        except Exception as e:
            yield f"rows cannot be read after the night: {e}"
    code, stderr = called("maintain", "--keep-nights", "1", "--warehouse", str(warehouse), "--cluster", "nights")
    if not is_one_sentence(code, stderr):
        yield f"maintain ended with {code}: {stderr.strip()[-300:]}"


def three_nights(place: Path) -> tuple[Path, list[Tables]]:
    """Return a warehouse of three nights, and the rows that every table may have after the fourth one.

    The fourth night goes on from the third; or reads all logs again, as with --full, where the table that it would go on from is damaged;
    or goes on from the second, where the row of the third in ``runs`` is lost, as if that one had not finished.
    """
    whole = place / "whole"
    expected = []
    for number in (1, 2, 3):
        if number == 3:
            expected.append(_after_the_fourth(whole, place / "without-the-third"))
        assert night(whole, number) == (0, "")
    return whole, [_after_the_fourth(whole, place / "incremental"), _after_the_fourth(whole, place / "full", "--full"), *expected]


def _after_the_fourth(warehouse: Path, copy: Path, *options: str) -> Tables:
    shutil.copytree(warehouse, copy)
    assert night(copy, 4, *options) == (0, "")
    return tables_of(copy, "nights")


def main() -> None:
    from groupcoord_spark.spark.session import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--damages", nargs="+", choices=list(DAMAGES), default=list(DAMAGES))
    options = parser.parse_args()
    spark = session(settings={"spark.master": "local[2]"})
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="damage-") as directory:
        place = Path(directory)
        whole, expected = three_nights(place)
        for what in options.damages:
            for table in options.tables:
                # A new place each time: Spark's workers remember small tables by their place and version.
                warehouse = place / f"damaged-{counts['damages']}"
                shutil.copytree(whole, warehouse)
                DAMAGES[what](warehouse / table)
                faults = list(faults_of(warehouse, whole, table, expected))
                counts["damages"] += 1
                counts["commands"] += len(READING) + 2
                counts["damages with a fault"] += bool(faults)
                shutil.rmtree(warehouse)
                for fault in faults:
                    print(f"{what}, {table}: {fault}", flush=True)
            print(f"{what}: done", flush=True)
    print(dict(counts))
    spark.stop()


if __name__ == "__main__":
    main()
