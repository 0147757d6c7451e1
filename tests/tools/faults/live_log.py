"""Reads the log directory of a running broker night after night, while its consumers commit and its log cleaner works, and counts.

The broker has small segments, and cleans them all the time unless options say otherwise. Each night must end with exit code 0, or with one
sentence. Of a run that ended with 0 every committed offset must be one that the group had while the run read: of a group at rest it is
known, that of a busy group lies between what the broker had confirmed before and after. When the consumers rest, a run over the same
directory must give what the broker answers.
``python -m tests.tools.faults.live_log --times 20``; with ``--copied cp`` or ``--copied slowly`` each night reads a copy made meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from groupcoord_spark.warehouse import open_warehouse
from tests.integration.groups import TOPICS, Groups, commit_when_coordinator_is_there
from tests.integration.kafka import running_broker
from tests.tools.faults.damage import called, is_one_sentence

SMALL_SEGMENTS = {
    "offsets.topic.segment.bytes": 1 << 20,  # a broker of 4.0 or newer takes no less
    "log.cleaner.delete.retention.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}
BUSY_GROUPS = 5
QUIET_GROUPS = 100
NIGHTS_AT_REST = 5
SECONDS_OF_COPYING = 3
SECONDS_OF_REST = 3


Place = tuple[str, int]
"""Group and partition of the topic ``orders``."""


@contextmanager
def busy_groups(servers: str, note: str) -> Iterator[dict[Place, int]]:
    """Groups without members that commit all the time, as fast as the broker takes it; and the offsets that the broker has confirmed.

    note: the metadata of each commit.
    """
    stopped = threading.Event()
    confirmed: dict[Place, int] = {}

    def commit(group_id: str) -> None:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group_id, "log_level": 0})
        for number in itertools.count(1):
            if stopped.is_set():
                break
            places = [TopicPartition("orders", partition, number, metadata=note) for partition in range(TOPICS["orders"])]
            commit_when_coordinator_is_there(consumer, places)
            confirmed.update(((group_id, place.partition), number) for place in places)
        consumer.close()

    threads = [threading.Thread(target=commit, args=(f"busy-{number}",)) for number in range(BUSY_GROUPS)]
    for thread in threads:
        thread.start()
    try:
        yield confirmed
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def quiet_groups(servers: str) -> dict[Place, int]:
    """Return the offsets of groups that commit once and never again: their records lie in the files that are cleaned most often."""
    offsets = {(f"quiet-{number}", 0): number for number in range(QUIET_GROUPS)}
    for (group_id, partition), offset in offsets.items():
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group_id, "log_level": 0})
        commit_when_coordinator_is_there(consumer, [TopicPartition("orders", partition, offset)])
        consumer.close()
    return offsets


def wrong_offsets(warehouse: Path, before: Mapping[Place, int], after: Mapping[Place, int]) -> list[str]:
    """Committed offsets of the newest night that are not between those confirmed before and after it read."""
    columns = ["group_id", "topic", "partition", "committed_offset"]
    rows = open_warehouse(str(warehouse)).read("committed_offsets", cluster="live", columns=columns).to_pylist()
    read = {(row["group_id"], row["partition"]): row["committed_offset"] for row in rows if row["topic"] == "orders"}
    # A commit that is confirmed only after the run may be in the log already.
    wrong = (place for place, low in before.items() if not low <= read.get(place, -1) <= after[place] + 1)
    return [f"{group_id}-{n}: {read.get((group_id, n))} of {before[group_id, n]}" for group_id, n in sorted(wrong)]


def copied_slowly(log_dir: Path, to: Path) -> None:
    """List the files first, and copy them one by one with pauses, without those that are gone by then."""
    for path in sorted(log_dir.rglob("*")):
        if path.is_dir():
            (to / path.relative_to(log_dir)).mkdir(parents=True, exist_ok=True)
    listed = [path for path in sorted(log_dir.rglob("*")) if path.is_file()]
    for path in listed:
        time.sleep(SECONDS_OF_COPYING / len(listed))
        with suppress(FileNotFoundError):
            shutil.copy(path, to / path.relative_to(log_dir))


def copied_by_cp(log_dir: Path, to: Path) -> None:
    """``cp -r``, whose complaints about files that are gone are not heard."""
    subprocess.run(["cp", "-r", str(log_dir), str(to)], check=False, capture_output=True)


COPIED = {"cp": copied_by_cp, "slowly": copied_slowly}


def night(log_dir: Path, warehouse: Path, *options: str) -> tuple[int, str]:
    """Exit code and stderr of a run over the broker's own directory."""
    return called("nightly", str(log_dir), "--warehouse", str(warehouse), "--cluster", "live", "--quiet", *options)


def nights_beside(log_dir: Path, warehouse: Path, times: int, confirmed: Mapping[Place, int], copied: str | None) -> Counter[str]:
    """Return the last sentences of runs that read a working broker's log, without names and numbers."""
    counts: Counter[str] = Counter()
    for number in range(times):
        before, dump = dict(confirmed), log_dir
        if copied is not None:
            dump = warehouse.parent / f"copy-{number}"
            COPIED[copied](log_dir, dump)
        # Each second night reads all of the log: an incremental one opens few files.
        code, stderr = night(dump, warehouse, *(["--full"] if number % 2 else []))
        is_fine = is_one_sentence(code, stderr)
        if not is_fine:
            print(f"night {number}: {code} {stderr[-400:]}", flush=True)
        last = "finished" if code == 0 else re.sub(r"\S*/\S+|\d+", "N", stderr.strip().splitlines()[-1])
        if code == 0 and (wrong := wrong_offsets(warehouse, before, dict(confirmed))):
            print(f"night {number}: {len(wrong)} wrong offsets: {', '.join(wrong[:5])}", flush=True)
            last = "finished with wrong offsets"
        counts[last if is_fine else "failed in another way"] += 1
        if copied is not None:
            shutil.rmtree(dump)
    return counts


def main() -> None:
    from groupcoord_spark.spark.session import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--note-bytes", type=int, default=4000, help="metadata of a commit: with many, segments fill up within seconds")
    parser.add_argument("--rest-ms", type=int, default=100, help="how long the log cleaner rests after a pass; Kafka's default is 15000")
    parser.add_argument("--dirty-ratio", type=float, default=0.01, help="from which on a partition is cleaned; Kafka's default is 0.5")
    parser.add_argument("--copied", choices=COPIED, help="copy the log before each night, and read the copy")
    options = parser.parse_args()
    cleaner = {"log.cleaner.backoff.ms": options.rest_ms, "log.cleaner.min.cleanable.ratio": options.dirty_ratio}
    spark = session(settings={"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory(prefix="live-log-") as directory:
        place = Path(directory)
        (place / "broker").mkdir()
        with running_broker(place / "broker", {**SMALL_SEGMENTS, **cleaner}) as broker, Groups(broker.servers) as groups:
            groups.work()
            at_rest = quiet_groups(broker.servers)
            with busy_groups(broker.servers, "n" * options.note_bytes) as confirmed:
                confirmed.update(at_rest)
                counts = nights_beside(broker.log_dir, place / "w", options.times, confirmed, options.copied)
            names = [path.name for path in broker.log_dir.glob("__consumer_offsets-*/*")]
            groups.rest()
            time.sleep(SECONDS_OF_REST)
            for _ in range(NIGHTS_AT_REST):
                code, stderr = night(broker.log_dir, place / "w")
                if code == 0:
                    break
                time.sleep(SECONDS_OF_REST)
            compared, words = called("verify", "--warehouse", str(place / "w"), "--cluster", "live", "--against", broker.against)
    spark.stop()
    deleted = sum(name.endswith(".log.deleted") for name in names)
    print(f"{sum(name.endswith('.log') for name in names)} segments at the end, and {deleted} to be deleted")
    print(f"at rest the night ended with {code} {stderr.strip()}, and verify with {compared}: {words.strip().splitlines()[-1]}")
    for said, times in counts.most_common():
        print(f"{times:3} x {said}")


if __name__ == "__main__":
    main()
