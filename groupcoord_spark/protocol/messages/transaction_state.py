"""Records of the topic ``__transaction_state``: what the coordinator of transactions knows of each transactional id.

Source: kafka, transaction-coordinator/src/main/resources/common/message/, a file for each message by its name.
"""

from ..fields import Array, Field, Int8, Int16, Int32, Int64, Message, RecordType, String, Struct

TRANSACTION_LOG_KEY = Message(
    "TransactionLogKey", versions=(0, 0),
    since={0: "0.11, KIP-98"},
    fields=(Field("transactional_id", String, "The transactional id."),),
)

TRANSACTION_LOG_VALUE = Message(
    "TransactionLogValue", versions=(0, 1), flexible_from=1,
    since={0: "0.11, KIP-98", 1: "3.8, KIP-915; tags since 4.0, KIP-890"},
    fields=(
        Field("producer_id", Int64, "The producer id in use."),
        Field("previous_producer_id", Int64, "The producer id before; -1: none.", versions="1+", tag=0, default=-1),
        Field("next_producer_id", Int64, "The producer id after this transaction; -1: the same.", versions="1+", tag=1, default=-1),
        Field("producer_epoch", Int16, "The epoch of the producer id."),
        Field("next_producer_epoch", Int16, "The epoch of the next producer id; -1: none.", versions="1+", tag=3, default=-1),
        Field("timeout_ms", Int32, "The client's transaction.timeout.ms.", json="transactionTimeoutMs"),
        Field(
            "status", Int8, "0 Empty, 1 Ongoing, 2, 3 Prepare-, 4, 5 Complete-(Commit, Abort), 6 Dead, 7 PrepareEpochFence.",
            json="transactionStatus",
        ),
        Field("partitions", Array(Struct((
            Field("topic", String, "A topic of the transaction."),
            Field("partition_ids", Array(Int32), "Its partitions of the transaction."),
        )), nullable=True), "What the transaction wrote to; null: nothing.", json="transactionPartitions"),
        Field("last_update_timestamp_ms", Int64, "When the state changed.", json="transactionLastUpdateTimestampMs"),
        Field("start_timestamp_ms", Int64, "When the transaction began; -1: none did.", json="transactionStartTimestampMs"),
        Field("client_transaction_version", Int16, "The transaction version of the client.", versions="1+", tag=2, default=0),
    ),
)

RECORD_TYPES = {
    0: RecordType(0, TRANSACTION_LOG_KEY, TRANSACTION_LOG_VALUE, tombstone="The coordinator has forgotten the transactional id."),
}
