"""All messages of the offsets topic as tables: their fields, the versions of each field, and the first release with it.

``RECORD_TYPES`` holds each record type by the number that begins its keys. Type 18 was never released.
"""

from ..fields import RecordType
from . import classic, consumer, offsets, share, streams

RECORD_TYPES: dict[int, RecordType] = {
    record_type.key_type: record_type
    for family in (offsets, classic, consumer, share, streams)
    for record_type in sorted(family.RECORD_TYPES, key=lambda record_type: record_type.key_type)
}
