"""Reads the log directory of a running broker night after night, while its consumers commit and its log cleaner works, and counts.

The broker has small segments, and cleans them all the time unless options say otherwise. Each night must end with exit code 0, or with one
sentence. When the consumers rest, a night over the same directory must give what the broker answers.
``python -m tests.faults.live_log --times 20``
"""

from __future__ import annotations

import argparse
import itertools
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.faults.damage import called, is_one_sentence
from tests.integration.groups import TOPICS, Groups, commit_when_coordinator_is_there
from tests.integration.kafka import running_broker

SMALL_SEGMENTS = {
    "offsets.topic.segment.bytes": 1 << 20,  # a broker of 4.0 or newer takes no less
    "log.cleaner.delete.retention.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}
BUSY_GROUPS = 5
NIGHTS_AT_REST = 5
SECONDS_OF_REST = 3


@contextmanager
def busy_groups(servers: str, note: str) -> Iterator[None]:
    """Groups without members that commit all the time, as fast as the broker takes it. note: the metadata of each commit."""
    stopped = threading.Event()

    def commit(group_id: str) -> None:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group_id, "log_level": 0})
        for number in itertools.count(1):
            if stopped.is_set():
                break
            places = [TopicPartition("orders", partition, number, metadata=note) for partition in range(TOPICS["orders"])]
            commit_when_coordinator_is_there(consumer, places)
        consumer.close()

    threads = [threading.Thread(target=commit, args=(f"busy-{number}",)) for number in range(BUSY_GROUPS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def night(log_dir: Path, warehouse: Path, *options: str) -> tuple[int, str]:
    """Exit code and stderr of a night over the broker's own directory."""
    return called("nightly", str(log_dir), "--warehouse", str(warehouse), "--cluster", "live", "--quiet", *options)


def nights_beside(log_dir: Path, warehouse: Path, times: int) -> Counter[str]:
    """How the nights beside a working broker ended: their sentences, without names and numbers."""
    counts: Counter[str] = Counter()
    for number in range(times):
        # Each second night reads all of the log: an incremental one opens few files.
        code, stderr = night(log_dir, warehouse, *(["--full"] if number % 2 else []))
        is_fine = is_one_sentence(code, stderr)
        if not is_fine:
            print(f"night {number}: {code} {stderr[-400:]}", flush=True)
        last = "finished" if code == 0 else re.sub(r"\S*/\S+|\d+", "N", stderr.strip().splitlines()[-1])
        counts[last if is_fine else "failed in another way"] += 1
    return counts


def main() -> None:
    from groupcoord_spark.spark.session import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--note-bytes", type=int, default=4000, help="metadata of a commit: with many, segments fill up within seconds")
    parser.add_argument("--rest-ms", type=int, default=100, help="how long the log cleaner rests after a pass; Kafka's default is 15000")
    parser.add_argument("--dirty-ratio", type=float, default=0.01, help="from which on a partition is cleaned; Kafka's default is 0.5")
    options = parser.parse_args()
    cleaner = {"log.cleaner.backoff.ms": options.rest_ms, "log.cleaner.min.cleanable.ratio": options.dirty_ratio}
    spark = session(settings={"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory(prefix="live-log-") as directory:
        place = Path(directory)
        (place / "broker").mkdir()
        with running_broker(place / "broker", {**SMALL_SEGMENTS, **cleaner}) as broker, Groups(broker.servers) as groups:
            groups.work()
            with busy_groups(broker.servers, "n" * options.note_bytes):
                counts = nights_beside(broker.log_dir, place / "w", options.times)
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
