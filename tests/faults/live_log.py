"""Reads the log directory of a running broker night after night, while its consumers commit and its log cleaner works, and counts.

The broker has small segments and cleans them all the time. Each night must end with exit code 0, or with 1 and one sentence. When the
consumers rest, a night over the same directory must give what the broker answers. ``python -m tests.faults.live_log --times 20``
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.damage import called, is_one_sentence
from tests.integration.groups import Groups
from tests.integration.kafka import running_broker

EAGER_CLEANER = {
    "offsets.topic.segment.bytes": 16_384,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.delete.retention.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}
NIGHTS_AT_REST = 5
SECONDS_OF_REST = 3


def night(log_dir: Path, warehouse: Path, *options: str) -> tuple[int, str]:
    """Exit code and stderr of a night over the broker's own directory."""
    return called("nightly", str(log_dir), "--warehouse", str(warehouse), "--cluster", "live", "--quiet", *options)


def main() -> None:
    from groupcoord_spark.spark.session import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    spark = session(settings={"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory(prefix="live-log-") as directory:
        place = Path(directory)
        (place / "broker").mkdir()
        with running_broker(place / "broker", EAGER_CLEANER) as broker, Groups(broker.servers) as groups:
            groups.work()
            for number in range(options.times):
                # Each second night reads all of the log: an incremental one opens few files.
                code, stderr = night(broker.log_dir, place / "w", *(["--full"] if number % 2 else []))
                if not is_one_sentence(code, stderr):
                    counts["nights that failed in another way"] += 1
                    print(f"night {number}: {code} {stderr[-400:]}", flush=True)
                said = "finished" if code == 0 else re.sub(r"\S*/\S+|\d+", "N", stderr.strip().splitlines()[-1])
                counts[said] += 1
            files = [path for path in broker.log_dir.glob("__consumer_offsets-*/*") if ".log" in path.name]
            groups.rest()
            time.sleep(SECONDS_OF_REST)
            for _ in range(NIGHTS_AT_REST):
                code, stderr = night(broker.log_dir, place / "w")
                if code == 0:
                    break
                time.sleep(SECONDS_OF_REST)
            compared, words = called("verify", "--warehouse", str(place / "w"), "--cluster", "live", "--against", broker.against)
    spark.stop()
    print(f"segments at the end, with those to be deleted: {len(files)}")
    print(f"at rest the night ended with {code} {stderr.strip()}, and verify with {compared}: {words.strip().splitlines()[-1]}")
    for said, times in counts.most_common():
        print(f"{times:3} x {said}")


if __name__ == "__main__":
    main()
