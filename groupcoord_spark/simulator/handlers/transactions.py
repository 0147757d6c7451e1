"""AddOffsetsToTxn, EndTxn and WriteTxnMarkers: the part of the transaction coordinator that changes the offsets of groups.

The producer epoch and the state of the transaction are not checked.
"""

from collections.abc import Callable
from functools import partial

from groupcoord_spark.protocol.record_types import MarkerType
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.messages import Call, Error, RefusedError
from groupcoord_spark.simulator.messages.answers import ErrorAnswer
from groupcoord_spark.simulator.messages.requests import AddOffsetsToTxn, EndTxn, WriteTxnMarkers


def add_offsets_to_txn(broker: Broker, call: Call, request: AddOffsetsToTxn) -> None:
    """Make the group's offsets partition part of the transaction: it gets a marker when the transaction ends."""
    broker.transactions.setdefault(request.producer_id, set()).add(broker.partition_number(request.group_id))
    broker.answer(call, ErrorAnswer(Error.NONE))


def write_txn_markers(broker: Broker, call: Call, request: WriteTxnMarkers) -> None:
    """Write one marker to the offsets partition of the group, whichever partitions take part in the transaction."""
    partition = broker.partitions.get(broker.partition_number(request.group_id))
    if partition is None:
        raise RefusedError(Error.NOT_LEADER_OR_FOLLOWER)

    def end(error: Error) -> None:
        broker.answer(call, ErrorAnswer(error))

    _write_marker(broker, partition.number, request, end)


def end_txn(broker: Broker, call: Call, request: EndTxn) -> None:
    """Have the marker written to each partition of the transaction: the staged offsets are committed or dropped.

    The answer does not wait for the markers. The transaction coordinator repeats a marker until it is written: here when appends succeed
    again, or when the partition has been loaded.
    """
    broker.answer(call, ErrorAnswer(Error.NONE))
    for number in sorted(broker.transactions.pop(request.producer_id, ())):
        _write_or_keep(broker, number, request)


def write_kept_markers(broker: Broker) -> None:
    """Write the markers that could not be written before."""
    kept, broker.unwritten_markers = broker.unwritten_markers, []
    for write in kept:
        write()


def _write_or_keep(broker: Broker, number: int, request: EndTxn) -> None:
    again = partial(_write_or_keep, broker, number, request)

    def end(error: Error) -> None:
        if error is Error.NONE:
            return
        if broker.log.error is Error.NONE:
            again()
        else:
            broker.unwritten_markers.append(again)

    partition = broker.partitions.get(number)
    if partition is None or partition.is_loading:
        broker.unwritten_markers.append(again)
    else:
        _write_marker(broker, number, request, end)


def _write_marker(broker: Broker, number: int, request: EndTxn | WriteTxnMarkers, end: Callable[[Error], None]) -> None:
    """Write a marker, and apply it when it is written. ``end`` is called with the result of the append after that."""
    partition, producer_id = broker.partitions[number], request.producer_id
    marker = MarkerType.COMMIT if request.committed else MarkerType.ABORT
    offsets, marker_offset = partition.offsets, partition.next_record_offset

    def apply(error: Error) -> None:
        if error is Error.NONE:
            # Commits that came while the marker was being written belong to the next transaction of the producer.
            staged = [(key, by_producer[producer_id]) for key, by_producer in offsets.pending.items() if producer_id in by_producer]
            later = [(key, commit) for key, commit in staged if commit.record_offset > marker_offset]
            for key, _ in later:
                offsets.unstage(*key, producer_id)
            offsets.end_transaction(producer_id, marker)
            for key, commit in later:
                offsets.stage(*key, producer_id, commit)
            for producers in partition.producers_with_open_transaction.values():
                producers.discard(producer_id)
        end(error)

    broker.log.append_marker(partition, producer_id, request.producer_epoch, marker.name, apply)
