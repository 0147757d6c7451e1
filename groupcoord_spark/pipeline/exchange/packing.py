"""The one way in which columns become a value of BINARY between two stages, and columns again: a stream of Arrow, compressed with lz4.

Packing takes a third of the bytes, and what crosses to Spark costs more than the packing does.
"""

from __future__ import annotations

import pyarrow as pa

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


def pack(rows: pa.Table | pa.RecordBatch) -> bytes:
    """The rows as one Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_LZ4) as stream:
        stream.write(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(packed: bytes) -> pa.Table:
    """The rows of a stream as a table."""
    return pa.ipc.open_stream(packed).read_all()


def unpack_batch(packed: bytes) -> pa.RecordBatch:
    """The rows of a stream that was made of one batch."""
    return pa.ipc.open_stream(packed).read_next_batch()
