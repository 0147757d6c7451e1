"""AddOffsetsToTxn and EndTxn: as much of the transaction coordinator as a group's offsets can feel.

Whether the producer may do so (its epoch, an ongoing transaction) is not checked.
"""

from groupcoord_spark.coordinator.transactions import ABORT_MARKER, COMMIT_MARKER
from groupcoord_spark.simulator.answers import TransactionAnswer
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.requests import AddOffsetsToTxn, EndTxn


def add_offsets_to_txn(broker: Broker, call: Call, request: AddOffsetsToTxn) -> None:
    """The group's offsets partition will get a marker when the transaction ends."""
    broker.transactions.setdefault(request.producer_id, set()).add(broker.partition_number(request.group_id))
    broker.answer(call, TransactionAnswer(Error.NONE))


def end_txn(broker: Broker, call: Call, request: EndTxn) -> None:
    """Write the markers: what the transaction staged is committed or dropped."""
    broker.answer(call, TransactionAnswer(Error.NONE))
    for number in sorted(broker.transactions.pop(request.producer_id, ())):
        partition = broker.partitions.get(number)
        if partition is None:
            continue
        broker.append_marker(partition, request.producer_id, request.producer_epoch, "COMMIT" if request.committed else "ABORT")
        partition.offsets.end_transaction(request.producer_id, COMMIT_MARKER if request.committed else ABORT_MARKER)
        for producers in partition.producers_with_open_transaction.values():
            producers.discard(request.producer_id)
