"""Values of the markers that end a transaction. Markers are in control batches and are not keys or values of groups.

Source: kafka, clients/src/main/resources/common/message/EndTxnMarker.json.
"""

from ..fields import Field, Int32, Message

END_TRANSACTION_MARKER = Message(
    "EndTxnMarker", versions=(0, 0),
    since={0: "0.11, KIP-98"},
    fields=(Field("coordinator_epoch", Int32, "Epoch of the transaction coordinator that ended the transaction."),),
)
