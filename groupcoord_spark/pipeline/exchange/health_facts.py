"""What the readers found out about the health of an offsets partition, on its way to the replay: large facts in several rows."""

import pickle
from collections.abc import Iterator

from groupcoord_spark.doctor import PartitionFacts, PartitionGatherer, all_files_beside
from groupcoord_spark.log import PartitionLog
from groupcoord_spark.pipeline.exchange.kept_records import FACTS, ROW_BYTES, ShuffledRow

_NUMBER_BYTES = 8


def rows_of_gatherer(log: PartitionLog, gatherer: PartitionGatherer, *, is_whole: bool) -> Iterator[ShuffledRow]:
    """Yield rows of SHUFFLED, none if the gatherer has seen nothing. ``is_whole``: no other gatherer sees records of the partition.

    A gatherer with all its keys is large: 1 MB for 200,000 generated records. So the facts travel where they can be made here.
    """
    if gatherer.first_offset < 0:
        return
    data = pickle.dumps(_facts_of(gatherer, log) if is_whole else gatherer)
    for number, begin in enumerate(range(0, len(data), ROW_BYTES)):
        payload = number.to_bytes(_NUMBER_BYTES, "big") + data[begin : begin + ROW_BYTES]
        yield ShuffledRow(log.offsets_partition, gatherer.first_offset, FACTS, payload)


def _facts_of(gatherer: PartitionGatherer, log: PartitionLog) -> PartitionFacts:
    gatherer.fit(all_files_beside(log))
    # of hundreds of thousands of groups the driver needs the sums alone
    return gatherer.facts(with_groups=False)


class HealthPieces:
    """Collects the payloads of one offsets partition."""

    def __init__(self) -> None:
        self._payloads: dict[int, list[bytes]] = {}

    def add(self, first_offset: int, payload: bytes) -> None:
        """Add a reader's payload. ``first_offset`` is the offset of its first record."""
        self._payloads.setdefault(first_offset, []).append(payload)

    def facts(self, log: PartitionLog | None) -> PartitionFacts | None:
        """Return the statistics of the offsets partition, or None without a payload. ``log`` is the partition's log."""
        whole: PartitionGatherer | None = None
        for _, payloads in sorted(self._payloads.items()):
            # the number is in front: the pieces sort by it
            piece: PartitionGatherer | PartitionFacts = pickle.loads(b"".join(payload[_NUMBER_BYTES:] for payload in sorted(payloads)))
            if isinstance(piece, PartitionFacts):
                return piece
            if whole is None:
                whole = piece
            else:
                whole.absorb(piece)
        return None if whole is None or log is None else _facts_of(whole, log)
