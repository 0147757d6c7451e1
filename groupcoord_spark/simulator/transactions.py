"""AddOffsetsToTxn, EndTxn and WriteTxnMarkers: the part of the transaction coordinator that changes the offsets of groups.

The producer epoch and the state of the transaction are not checked.
"""

from groupcoord_spark.protocol.record_types import MarkerType
from groupcoord_spark.simulator.answers import TransactionAnswer
from groupcoord_spark.simulator.broker import Broker, OffsetsPartition
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.requests import AddOffsetsToTxn, EndTxn, WriteTxnMarkers


def add_offsets_to_txn(broker: Broker, call: Call, request: AddOffsetsToTxn) -> None:
    """Make the group's offsets partition part of the transaction: it gets a marker when the transaction ends."""
    broker.transactions.setdefault(request.producer_id, set()).add(broker.partition_number(request.group_id))
    broker.answer(call, TransactionAnswer(Error.NONE))


def write_txn_markers(broker: Broker, call: Call, request: WriteTxnMarkers) -> None:
    """Write one marker to the offsets partition of the group, whichever partitions take part in the transaction."""
    partition = broker.partitions.get(broker.partition_number(request.group_id))
    broker.answer(call, TransactionAnswer(Error.NOT_LEADER_OR_FOLLOWER if partition is None else Error.NONE))
    if partition is not None:
        _end_in(broker, partition, request.producer_id, request.producer_epoch, _marker(request.committed))


def end_txn(broker: Broker, call: Call, request: EndTxn) -> None:
    """Write the marker to each partition of the transaction: the staged offsets are committed or dropped."""
    broker.answer(call, TransactionAnswer(Error.NONE))
    for number in sorted(broker.transactions.pop(request.producer_id, ())):
        partition = broker.partitions.get(number)
        if partition is not None:
            _end_in(broker, partition, request.producer_id, request.producer_epoch, _marker(request.committed))


def _marker(committed: bool) -> MarkerType:
    return MarkerType.COMMIT if committed else MarkerType.ABORT


def _end_in(broker: Broker, partition: OffsetsPartition, producer_id: int, producer_epoch: int, marker: MarkerType) -> None:
    broker.append_marker(partition, producer_id, producer_epoch, marker.name)
    partition.offsets.end_transaction(producer_id, marker)
    for producers in partition.producers_with_open_transaction.values():
        producers.discard(producer_id)
