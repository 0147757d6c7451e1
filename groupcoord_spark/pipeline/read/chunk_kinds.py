"""The kinds of the records of a chunk: all that the rules of dropping look at, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.protocol.slices import Ints, Mask, codes_of


@dataclass(frozen=True, slots=True)
class ChunkKinds:
    """Columns about the ``n`` records of a chunk, in the order of their record offsets: all that the rules of dropping look at.

    key_code: int64, one code for each distinct key; -1 where the key is null. group_code: int64, one code for each group id; -1 where the
    key has none. member_code: int64, one code for each member id, in all groups together. key_type: int16, -1 where it cannot be read.
    producer_id: int64, NO_PRODUCER_ID for none. control_type: int8, as in Records. is_control, is_tombstone: bool.
    is_transactional: bool, the bit of the batch (the Scala coordinator looks at this bit, the Java coordinator at the producer id).
    decodes: bool, the key is of a known type, and key and value decode.
    coordinator_accepts: bool, the record decodes and the coordinator loads records of its key type and value version. A record that is not
    accepted is refused in any state: it changes nothing and supersedes nothing.
    keeps_ended_transactions: of the whole chunk. For releases where a tombstone leaves the transaction open
    (``Semantics.tombstone_leaves_transaction_open``): every tombstone counts, and commits of transactions that have ended.
    """

    key_code: Ints
    group_code: Ints
    member_code: Ints
    key_type: npt.NDArray[np.int16]
    producer_id: Ints
    control_type: npt.NDArray[np.int8]
    is_control: Mask
    is_tombstone: Mask
    is_transactional: Mask
    decodes: Mask
    coordinator_accepts: Mask
    keeps_ended_transactions: bool = False

    def __len__(self) -> int:
        return len(self.key_type)

    def take(self, rows: Mask | Ints) -> "ChunkKinds":
        """Return the columns of the chosen records."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})


_COLUMNS = tuple(field.name for field in fields(ChunkKinds))[:-1]


class CodeNames(NamedTuple):
    """The distinct keys, group ids and member ids of a chunk. A code of ChunkKinds is the position here."""

    keys: pa.BinaryArray
    group_ids: pa.StringArray
    member_ids: pa.StringArray


def concatenated(chunks: Sequence[tuple[ChunkKinds, CodeNames]]) -> tuple[ChunkKinds, CodeNames]:
    """Consecutive chunks as one chunk, with new codes."""
    columns = {name: [getattr(kinds, name) for kinds, _ in chunks] for name in _COLUMNS}
    names = []
    for code, names_of_chunks in zip(
        ("key_code", "group_code", "member_code"), zip(*(code_names for _, code_names in chunks), strict=True), strict=True
    ):
        encoded = pa.concat_arrays(names_of_chunks).dictionary_encode()
        names.append(encoded.dictionary)
        new_codes = np.split(codes_of(encoded), np.cumsum([len(of_chunk) for of_chunk in names_of_chunks])[:-1])
        columns[code] = [np.append(new_code, -1)[old_codes] for new_code, old_codes in zip(new_codes, columns[code], strict=True)]
    whole: dict[str, Any] = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    return replace(chunks[0][0], **whole), CodeNames(*names)
