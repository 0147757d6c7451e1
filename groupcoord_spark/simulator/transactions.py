"""AddOffsetsToTxn and EndTxn: the part of the transaction coordinator that changes the offsets of groups.

The producer epoch and the state of the transaction are not checked.
"""

from groupcoord_spark.protocol.record_types import MarkerType
from groupcoord_spark.simulator.answers import TransactionAnswer
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.requests import AddOffsetsToTxn, EndTxn


def add_offsets_to_txn(broker: Broker, call: Call, request: AddOffsetsToTxn) -> None:
    """Make the group's offsets partition part of the transaction: it gets a marker when the transaction ends."""
    broker.transactions.setdefault(request.producer_id, set()).add(broker.partition_number(request.group_id))
    broker.answer(call, TransactionAnswer(Error.NONE))


def end_txn(broker: Broker, call: Call, request: EndTxn) -> None:
    """Write the marker to each partition of the transaction: the staged offsets are committed or dropped."""
    marker = MarkerType.COMMIT if request.committed else MarkerType.ABORT
    broker.answer(call, TransactionAnswer(Error.NONE))
    for number in sorted(broker.transactions.pop(request.producer_id, ())):
        partition = broker.partitions.get(number)
        if partition is None:
            continue
        broker.append_marker(partition, request.producer_id, request.producer_epoch, marker.name)
        partition.offsets.end_transaction(request.producer_id, marker)
        for producers in partition.producers_with_open_transaction.values():
            producers.discard(request.producer_id)
