"""Every code of the table ``warnings``, with what it says. A code that the package writes and this list lacks fails a test."""

from collections.abc import Mapping
from typing import Final

from groupcoord_spark.log import CODES, DamageKind

_OF_THE_LOADER: Final[Mapping[str, str]] = {
    "R-1.6": "The release does not know the key type: its loader skips the record, or before 3.4 does not load the partition.",
    "R-1.7": "The key is null: a broker cannot load the partition.",
    "R-1.8": "The key cannot be read: a broker cannot load the partition.",
    "R-1.9": "The release does not know the version of the value: it cannot load the partition.",
    "R-1.10": "The value cannot be read: a broker cannot load the partition.",
    "R-1.26": "A group was deleted without its offsets: no broker answers them until the group commits again.",
    "R-1.28": "A group was deleted and has only offsets of open transactions since: brokers before 4.0 log an error and serve the group.",
    "R-2.1": "Two members in one record of a classic group have the same instance id: the last one is kept.",
    "R-2.2": "A member is in one record of a classic group twice: the last entry is kept.",
    "R-2.4": "The subscription of a member cannot be read: which topics the group subscribes to is unknown.",
    "R-3.3": "A record of a share group under the id of a classic group that only holds offsets is refused.",
    "R-3.4": "A record of a consumer group under the id of a group of another kind is refused.",
    "R-3.5": "A record of a streams group under the id of a group of another kind is refused.",
    "R-3.6": "A record of a share group under the id of a group of another kind is refused.",
    "R-3.7": "The tombstone of a consumer group is refused: the group has members.",
    "R-3.8": "The tombstone of a consumer group is refused: members have target assignments.",
    "R-3.9": "The tombstone of a consumer group is refused: its assignment epoch has no tombstone.",
    "R-3.10": "The tombstone of a consumer group's member is refused: its current assignment has no tombstone.",
    "R-3.11": "The tombstone of a consumer group's member is refused: the member has a target assignment.",
    "R-3.12": "A target assignment with a negative epoch or timestamp is refused.",
    "R-3.13": "The tombstone of a consumer group's target assignment is refused: members still have theirs.",
    "R-3.14": "A partition is given to a member of a consumer group while another one owns it at the same or a later epoch.",
    "R-3.16": "The tombstone of a share group's member is refused: its current assignment has no tombstone.",
    "R-3.17": "The tombstone of a share group's member is refused: the member has a target assignment.",
    "R-3.18": "The tombstone of a share group is refused: the group has members.",
    "R-3.19": "The tombstone of a share group is refused: members have target assignments.",
    "R-3.20": "The tombstone of a share group is refused: its assignment epoch has no tombstone.",
    "R-3.21": "The tombstone of a share group's target assignment is refused: members still have theirs.",
    "R-3.22": "The tombstone of a streams group is refused: the group has members.",
    "R-3.23": "The tombstone of a streams group is refused: its assignment epoch has no tombstone.",
    "R-3.24": "The tombstone of a streams group's member is refused: its current assignment has no tombstone.",
    "R-3.25": "The tombstone of a streams group's member is refused: the member has a target assignment.",
    "R-3.26": "The tombstone of a streams group's member is refused: the member never had a current assignment.",
    "R-3.27": "The tombstone of a streams group's target assignment is refused: members still have theirs.",
    "R-3.29": "A member of a streams group has tasks to give back and no metadata: a broker cannot load the partition.",
    "R-3.30": "A topology of a streams group with a negative epoch is refused.",
    "R-4.6": "A transaction has no marker although its producer went on with a higher epoch: its offsets are kept pending.",
}
"""Rules that make a broker's loader reject or skip a record, or keeps state outside of groups because of it."""

_OF_THE_LOG: Final[Mapping[str, str]] = {code.name: code.sentence for code in CODES.values() if code.kind is not DamageKind.LOST}

_OF_RECORDS: Final[Mapping[str, str]] = {
    "key_trailing_bytes": "Bytes follow the last field of a key: the broker ignores them, to compaction it is another key.",
    "value_trailing_bytes": "Bytes follow the last field of a value: the broker ignores them.",
    "tagged_field_size_mismatch": "A tagged field has another size than it claims.",
    "invalid_utf8": "A text of a key is not UTF-8: what cannot be read is replaced as Java replaces it.",
    "legacy_value_version": "A key of type 0 has a value of a version of type 1: it is read so, and brokers since 4.1 refuse it.",
    "beyond_limits": "A value has more elements or tagged fields than allowed: Kafka 4.2.2, and every release since 4.4.0, refuses it.",
    "negative_partition": "The partition in a key is negative.",
    "negative_offset": "The committed offset is negative. No run warns of it: the tables have the offset.",
    "transactional_non_offset": "A group record lies in a transactional batch: it counts at once.",
    "transactional_mismatch": "A batch of offsets has a producer id or the transactional bit, not both.",
    "transactional_tombstone": "The tombstone of an offset lies in a transaction; no broker writes it.",
}

_OF_THE_INPUT: Final[Mapping[str, str]] = {
    "row_duplicate": "Rows are there more than once, byte for byte; one of each is taken.",
    "other_topic": "Rows are of other topics; they are not read.",
    "other_cluster": "Rows are of other clusters; they are not read.",
    "earlier_incarnation": "Rows are of an earlier incarnation of the topic; they are not read.",
    "value_absent": "Lines have a key and no field for a value: they are read as tombstones.",
    "value_empty": "Texts of values are empty: they are read as tombstones.",
    "timestamp_unit": "Timestamps are in seconds, microseconds or nanoseconds; they are read as such.",
    "timestamp_implausible": "Timestamps are before 2014 or after 2099 in every unit.",
    "transactions_unknown": "The input does not tell which records are of transactions, nor how those ended.",
    "files_not_read": "Files of the input's folder are not read, for the reasons in the detail.",
    "end_offsets_not_understood": "The file of --end-offsets has lines that are not understood; they are not used.",
    "log_not_read": "The run is from the Admin API: what only the log has is NULL, and the tables of the history have no rows.",
    "group_not_described": "The brokers list the group and do not describe it to this client: it is in no table of the state.",
    "other_coordinator": "The records are of another coordinator than the chosen rules were applied.",
    "carried_state_differs": "A run with --full read another state of a group than the earlier runs had carried on.",
    "compacted_before_until": "Records before --until are in neither log nor history any more: the state of that moment may not be exact.",
    "keys_vanished": "Live records of the last run are gone without a later one or a tombstone: the copy may not be whole.",
    "log_begins_late": "The first segments of the log are missing in this copy: groups whose last record is there are missing as well.",
    "log_truncated": "The log was truncated below the end of the last run, as after an unclean leader election: commits are lost.",
    "gap_since_last_night": "The log begins after the end of the last run: records between the two were never seen.",
    "group_wrong_partition": "No client finds the group here: the topic got more partitions. The state has what its new partition has.",
    "partition_count_changed": "The groups fit another number of partitions of the offsets topic than in the last run.",
    "clock_went_back": "The run began before the newest run had finished, by the clocks of their machines.",
    "settings_contradicted": "By the settings file the topic has fewer partitions than the log has; their number is estimated.",
}

WARNING_CODES: Final[Mapping[str, str]] = {**_OF_THE_LOADER, **_OF_THE_LOG, **_OF_RECORDS, **_OF_THE_INPUT}
"""Code -> what it says, in a sentence."""
