"""Kafka's JSON of many keys or values as texts: as ``definition.key_json`` and ``definition.value_json`` give it, without spaces.

The compiled loop of ``json_loops`` writes the texts straight from the bytes. Rows that the loop leaves, and all rows of a small input, are
decoded one by one, equal rows once.
"""

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from . import definition, fast_path
from .columnar import Int64s
from .definition import decode_key, decode_value
from .errors import DecodeError
from .json_programs import json_programs
from .programs import VERSIONS
from .slices import Mask, Slices

PIECE_BYTES: Final = 1 << 20
"""Bytes of texts in one piece of a column, about: so few that the loop writes into the processor's cache."""


def key_json_column(keys: Slices) -> pa.ChunkedArray:
    """Return the JSON text of each key, null for a null or malformed key."""
    program = _program(json_programs().key_begin, keys.leading_int16().astype(np.int64))
    text_of = cache(_key_text)
    return _column(keys, program, lambda _, rows: [text_of(key) for key in rows.to_arrow().to_pylist()])


def value_json_column(key_type: npt.NDArray[np.int16], values: Slices) -> pa.ChunkedArray:
    """Return the JSON text of each value, null for tombstones and values that do not decode. ``key_type`` holds the type of each value's
    key."""
    version = values.leading_int16()
    has_program = (key_type >= 0) & (version >= 0) & (version < VERSIONS)
    place = np.where(has_program, key_type.astype(np.int64) * VERSIONS + version, -1)
    text_of = cache(_value_text)

    def decoded_one_by_one(at: Int64s, rows: Slices) -> list[str | None]:
        return [text_of(*typed) for typed in zip(key_type[at].tolist(), rows.to_arrow().to_pylist(), strict=True)]

    return _column(values, _program(json_programs().value_begin, place), decoded_one_by_one)


def _program(begin: Int64s, place: Int64s) -> Int64s:
    """Return the first bytecode step of each row, looked up at ``place`` in ``begin``, or -1 if the row has none."""
    is_known = (place >= 0) & (place < len(begin))
    return np.where(is_known, begin[np.where(is_known, place, 0)], -1)


def _column(rows: Slices, program: Int64s, decoded_one_by_one: Callable[[Int64s, Slices], list[str | None]]) -> pa.ChunkedArray:
    """Return the texts of all rows. ``decoded_one_by_one`` returns the texts of some rows from their row numbers and bytes."""
    if not fast_path.loops_for(len(rows)):
        return pa.chunked_array([pa.array(decoded_one_by_one(np.arange(len(rows)), rows), pa.string())])
    text_end, is_written = np.empty(len(rows), np.int64), np.empty(len(rows), np.bool_)
    pieces, borders = _written_pieces(rows, program, text_end, is_written)
    texts = []
    for piece, (first, last) in zip(pieces, pairwise(borders), strict=True):
        offsets = np.concatenate(([0], text_end[first:last])).astype(np.int32)
        is_valid = is_written[first:last]
        validity = None if is_valid.all() else pa.array(is_valid).buffers()[1]
        strings = pa.StringArray.from_buffers(last - first, pa.py_buffer(offsets), pa.py_buffer(piece), validity)
        left = first + np.flatnonzero(~is_valid & ~rows.is_null[first:last])
        if len(left):
            is_left = np.zeros(last - first, np.bool_)
            is_left[left - first] = True
            strings = pc.replace_with_mask(strings, is_left, pa.array(decoded_one_by_one(left, rows.take(left)), pa.string()))
        texts.append(strings)
    return pa.chunked_array(texts, pa.string())


def _written_pieces(rows: Slices, program: Int64s, text_end: Int64s, is_written: Mask) -> tuple[list[npt.NDArray[np.uint8]], list[int]]:
    """Return the texts that the kernel can write as pieces of bytes, and the row boundaries between them. Fills ``text_end`` and
    ``is_written``."""
    loops = fast_path.load_json()
    assert loops is not None
    programs, out = json_programs(), np.empty(PIECE_BYTES, np.uint8)
    messages = (rows.data, rows.start, rows.end, program, programs.literals, programs.steps)
    stack, nothing_hidden = np.empty(loops.DEEPEST, np.int64), np.empty((0, 4), np.int64)
    pieces, borders = [], [0]
    while borders[-1] < len(rows):
        row, size = loops.write_messages(*messages, stack, nothing_hidden, borders[-1], out, text_end, is_written)
        if row == borders[-1]:
            out = np.empty(2 * len(out), np.uint8)  # a single text is larger than a piece
            continue
        pieces.append(out[:size].copy())
        borders.append(row)
    return pieces, borders


def _key_text(key: bytes | None) -> str | None:
    try:
        return _compact(definition.key_json(decode_key(key)))
    except DecodeError:
        return None


def _value_text(key_type: int, value: bytes | None) -> str | None:
    try:
        decoded = decode_value(key_type, value)
    except DecodeError:
        return None
    return None if decoded is None else _compact(definition.value_json(decoded))


def _compact(shown: Any) -> str:
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False)
