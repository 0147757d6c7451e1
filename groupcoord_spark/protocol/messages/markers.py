"""Control records: the markers that end a transaction. They come in control batches and are no keys or values of groups."""

from __future__ import annotations

from ..fields import Field, Int16, Int32, Message

CONTROL_RECORD_KEY = Message(
    "ControlRecordType", versions=(0, 0),
    source="kafka: clients/src/main/resources/common/message/ControlRecordTypeSchema.json",
    since={0: "0.11, KIP-98"},
    fields=(Field("type", Int16, "0 ABORT, 1 COMMIT; 2 to 6 belong to the metadata log."),),
)

END_TRANSACTION_MARKER = Message(
    "EndTxnMarker", versions=(0, 0),
    source="kafka: clients/src/main/resources/common/message/EndTxnMarker.json",
    since={0: "0.11, KIP-98"},
    fields=(Field("coordinator_epoch", Int32, "Epoch of the transaction coordinator that ended the transaction."),),
)
