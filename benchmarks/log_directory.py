"""The CPU time of a run for files other than the offsets topic: a checkpoint of 500,000 partitions and the metadata of 100,000 topics.

``python -m benchmarks.log_directory``. Prints CPU seconds of reading, and of writing the rows, for the parts that the log directory adds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.pipeline.beside_the_offsets import read_beside_the_offsets
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.protocol.definition import write_message
from groupcoord_spark.protocol.messages.cluster_metadata import RECORD_TYPES
from groupcoord_spark.protocol.primitives import uuid_text
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.warehouse import TABLES, write_part
from tests.log.log_writer import Rec, batch

RECORDS_OF_A_BATCH = 200


def record(record_type: int, **fields: object) -> Rec:
    message = RECORD_TYPES[record_type]
    version = message.versions[1]
    values = {field.name: field.absent_value() for field in message.fields} | fields
    return Rec(None, bytes([1, record_type, version]) + write_message(message, version, values))


def metadata(topics: int, partitions: int) -> list[Rec]:
    """Return the records of topics with three replicas of each partition, and a setting of every tenth topic."""
    records = []
    for number in range(topics):
        topic_id = uuid_text(number.to_bytes(16, "big"))
        records.append(record(2, name=f"team-{number % 97}.events.{number}", topic_id=topic_id))
        for partition in range(partitions):
            replicas = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "directories": [topic_id] * 3, "leader": 1}
            records.append(record(3, partition_id=partition, topic_id=topic_id, **replicas))
        if number % 10 == 0:
            name = f"team-{number % 97}.events.{number}"
            records.append(record(4, resource_type=2, resource_name=name, name="retention.ms", value="86400000"))
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        logs = Path(place) / "logs"
        directory = logs / "__cluster_metadata-0"
        directory.mkdir(parents=True)
        records = metadata(asked.topics, asked.partitions)
        with (directory / f"{0:020}.log").open("wb") as file:
            for at in range(0, len(records), RECORDS_OF_A_BATCH):
                some = records[at : at + RECORDS_OF_A_BATCH]
                file.write(batch(at, [Rec(each.key, each.value, offset_delta=delta) for delta, each in enumerate(some)]))
        lines = [
            f"team-{number % 97}.events.{number} {partition} {number * 1000}"
            for number in range(asked.topics)
            for partition in range(asked.partitions)
        ]
        (logs / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        request = RunRequest((str(logs),), place, "bench", as_of_ms=0, retention_ms=1, semantics=JAVA)
        began = time.process_time()
        beside = read_beside_the_offsets(request, InputKind.SEGMENTS, "run")
        read = time.process_time()
        for name, rows in beside.tables.items():
            write_part(f"{place}/warehouse", TABLES[name], rows, "bench", "run")
        written = time.process_time()
        counts = ", ".join(f"{name} {rows.num_rows:,}" for name, rows in beside.tables.items() if rows.num_rows)
        print(f"{counts}\nread {read - began:.2f} CPU s, written {written - read:.2f} CPU s, together {written - began:.2f} CPU s")


if __name__ == "__main__":
    main()
