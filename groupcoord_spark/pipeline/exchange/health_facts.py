"""What the readers found out about the health of an offsets partition, on its way to the replay: large facts in several rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa

from groupcoord_spark.doctor import PartitionGatherer
from groupcoord_spark.pipeline.exchange.kept_records import FACTS, ROW_BYTES, shuffled_row

_NUMBER_BYTES = 8


def rows_of_gatherer(cluster: str, offsets_partition: int, gatherer: PartitionGatherer) -> Iterator[pa.RecordBatch]:
    """Rows of SHUFFLED; none where the gatherer has seen nothing."""
    if gatherer.first_offset < 0:
        return
    data = pickle.dumps(gatherer)
    for number, begin in enumerate(range(0, len(data), ROW_BYTES)):
        payload = number.to_bytes(_NUMBER_BYTES, "big") + data[begin : begin + ROW_BYTES]
        yield shuffled_row(cluster, offsets_partition, gatherer.first_offset, FACTS, payload)


class GathererPieces:
    """Collects the payloads of one offsets partition."""

    def __init__(self) -> None:
        self._payloads: dict[int, list[bytes]] = {}

    def add(self, first_offset: int, payload: bytes) -> None:
        """A payload of the gatherer whose first record has this offset."""
        self._payloads.setdefault(first_offset, []).append(payload)

    def gatherer(self) -> PartitionGatherer | None:
        """One gatherer that has seen everything; None where there is no payload."""
        whole: PartitionGatherer | None = None
        for _, payloads in sorted(self._payloads.items()):
            # the number is in front: the pieces sort by it
            later: PartitionGatherer = pickle.loads(b"".join(payload[_NUMBER_BYTES:] for payload in sorted(payloads)))
            if whole is None:
                whole = later
            else:
                whole.absorb(later)
        return whole
