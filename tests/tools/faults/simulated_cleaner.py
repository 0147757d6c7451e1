"""Reads a log next to a writer and a log cleaner that never rest, in one process and without a broker, and counts the outcomes.

The writer commits keys, half of them never again after the beginning, and begins new files. The cleaner keeps the last record of each
key in all finished files, joins files, and puts the new files in the place of the old ones as Kafka does: .cleaned, .swap, .deleted.
Of each key that is read the value must lie between those that were written before and after the directory was listed.
``python -m tests.tools.faults.simulated_cleaner --times 300``
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from groupcoord_spark.errors import InputChangedError
from groupcoord_spark.log import plan_logs, read_segment
from groupcoord_spark.storage.held_files import HeldFiles
from tests.log.log_writer import Rec, batch

KEYS = [b"k%d" % number for number in range(40)]
BUSY_KEYS = 20
RECORDS_OF_ALL_KEYS = 400
RECORDS_OF_A_FILE = 30
RECORDS_OF_A_CLEANED_FILE = 25

Record = tuple[int, bytes, bytes]
HOW = ("held", "by path", "copied")


class BusyLog:
    """A partition's directory with a writer and a cleaner. written: key -> its last value that is in the file."""

    def __init__(self, place: Path) -> None:
        self.directory = place / "__consumer_offsets-0"
        self.directory.mkdir(parents=True)
        self.written: dict[bytes, int] = {}
        self._files: dict[int, list[Record]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._chosen = random.Random(1)
        self._next = 0
        self._begin_file()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Yield a block where both work; it begins when every key is written."""
        threads = [threading.Thread(target=work) for work in (self._write_all, self._clean_all)]
        for thread in threads:
            thread.start()
        try:
            while self._next < RECORDS_OF_ALL_KEYS:
                time.sleep(0.01)
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()

    def _begin_file(self) -> None:
        self._files[self._next] = []
        self._path(self._next).touch()

    def _path(self, base_offset: int, suffix: str = "") -> Path:
        return self.directory / f"{base_offset:020}.log{suffix}"

    def _write_all(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                key = self._chosen.choice(KEYS if self._next < RECORDS_OF_ALL_KEYS else KEYS[:BUSY_KEYS])
                base_offset = max(self._files)
                self._files[base_offset].append((self._next, key, b"%d" % self._next))
                with self._path(base_offset).open("ab") as file:
                    file.write(_bytes_of(self._files[base_offset][-1:]))
                self.written[key] = self._next
                self._next += 1
                if len(self._files[base_offset]) == RECORDS_OF_A_FILE:
                    self._begin_file()
            time.sleep(0.0002)

    def _clean_all(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                finished = dict(sorted(self._files.items())[:-1])
            last = {key: offset for records in finished.values() for offset, key, _ in records}
            cleaned: list[tuple[list[int], list[Record]]] = []
            for base_offset, records in finished.items():
                kept = [record for record in records if last[record[1]] == record[0]]
                if cleaned and len(cleaned[-1][1]) + len(kept) <= RECORDS_OF_A_CLEANED_FILE:
                    cleaned[-1][0].append(base_offset)
                    cleaned[-1][1].extend(kept)
                else:
                    cleaned.append(([base_offset], kept))
            for replaced, kept in cleaned:
                self._put_in_place(replaced, kept)
            time.sleep(0.0002)

    def _put_in_place(self, replaced: list[int], kept: list[Record]) -> None:
        base_offset = replaced[0]
        self._path(base_offset, ".cleaned").write_bytes(_bytes_of(kept))
        self._path(base_offset, ".cleaned").rename(self._path(base_offset, ".swap"))
        for old in replaced:
            self._path(old).rename(self._path(old, ".deleted"))
        self._path(base_offset, ".swap").rename(self._path(base_offset))
        for old in replaced:
            self._path(old, ".deleted").unlink()
        with self._lock:
            for old in replaced:
                del self._files[old]
            self._files[base_offset] = kept


def _bytes_of(records: list[Record]) -> bytes:
    return b"".join(batch(offset, [Rec(key, value)]) for offset, key, value in records)


def ending(log: BusyLog, how: str, pause: float) -> str:
    """Read once; return ``right``, ``wrong``, or ``changed`` where the reader said so."""
    before = dict(log.written)
    with tempfile.TemporaryDirectory() as place, HeldFiles() if how == "held" else nullcontext() as held:
        directory = log.directory
        if how == "copied":
            directory = Path(place) / directory.name
            _copy(log.directory, directory, pause)
        try:
            plan = plan_logs([str(directory)], held=held)
            after = dict(log.written)
            time.sleep(pause)
            read = {
                key: int(value)
                for segment in plan.partitions[0].segments
                for chunk in read_segment(segment)
                for key, value in zip(chunk.records.key.to_arrow().to_pylist(), chunk.records.value.to_arrow().to_pylist(), strict=True)
            }
        except InputChangedError:
            return "changed"
    return "right" if _is_between(before, read, after) else "wrong"


def _copy(directory: Path, to: Path, pause: float) -> None:
    """As ``cp -r``: first the names, then file by file; files that are gone by then are left out."""
    to.mkdir()
    names = list(directory.iterdir())
    for path in names:
        time.sleep(pause / len(names))
        try:
            shutil.copy(path, to)
        except FileNotFoundError:
            continue


def _is_between(before: Mapping[bytes, int], read: Mapping[bytes, int], after: Mapping[bytes, int]) -> bool:
    # The writer may have written one record more than it has noted.
    return all(low <= read.get(key, -1) and (read[key] <= after[key] or read[key] > max(after.values())) for key, low in before.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=300)
    options = parser.parse_args()
    chosen = random.Random(2)
    for how in HOW:
        with tempfile.TemporaryDirectory(prefix="simulated-cleaner-") as place:
            log = BusyLog(Path(place))
            with log.at_work():
                counts = Counter(ending(log, how, 0.05 * chosen.random()) for _ in range(options.times))
        print(f"{how:8} {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
