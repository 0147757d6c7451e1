"""Which partitions many current assignments (key type 8) name, as columns, without decoding one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from groupcoord_spark.protocol.columnar import View
from groupcoord_spark.protocol.fields import Field
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.slices import Mask, Positions, Slices
from groupcoord_spark.protocol.validity import VALUE_VERSION_BYTES, Walk

CURRENT_ASSIGNMENT_KEY = 8

Int64s = npt.NDArray[np.int64]


class Holdings(NamedTuple):
    """What values name, assigned or pending revocation, as often as they do.

    By topic, in the order of the values: row (of the value), topic_high and topic_low (the halves of the topic id). By partition: of_topic
    (place among those), and partition, int64. Where ``is_read`` (bool, one for each value) is False the value looks unusual, and what is
    told of it means nothing.
    """

    row: Positions
    topic_high: Int64s
    topic_low: Int64s
    of_topic: Positions
    partition: Int64s
    is_read: Mask


def held_partitions(value_version: npt.NDArray[np.int16], values: Slices) -> Holdings:
    """The partitions in values of ConsumerGroupCurrentMemberAssignment; none of the values is null."""
    message = RECORD_TYPES[CURRENT_ASSIGNMENT_KEY].value
    is_read = np.zeros(len(values), np.bool_)
    found: list[_Topic] = []
    first, last = message.versions
    for version in range(first, last + 1):
        rows = np.flatnonzero(value_version == version)
        begin, end = values.start[rows] + VALUE_VERSION_BYTES, values.end[rows]
        walk = _HoldingsWalk(values.data, message.is_flexible(version), version, begin, end, np.ones(len(rows), np.bool_), rows, found)
        walk.fields(message.fields_of(version))
        is_read[rows] = walk.ok & (walk.at == end)
    return _expanded(View(values.data), found, is_read)


class _Topic(NamedTuple):
    row: Positions
    topic_at: Positions
    partitions_at: Positions
    partitions: Positions


@dataclass(slots=True)
class _HoldingsWalk(Walk):
    """Notes where each topic id and the partitions beside it lie."""

    row: Positions
    found: list[_Topic] = field(repr=False)

    def rows(self, chosen: npt.NDArray[np.int64]) -> Self:
        return replace(self, at=self.at[chosen], end=self.end[chosen], ok=self.ok[chosen], row=self.row[chosen])

    def fields(self, fields: tuple[Field, ...]) -> None:
        topic_at = self.at
        for each in fields:
            if each.tag is not None:
                continue
            at = self.at
            self.value(each.type)
            if each.name == "topic_id":
                topic_at = at
            elif each.name == "partitions":
                # the array's own length takes one to four bytes, and each partition four
                count = np.maximum(self.at - at - 1, 0) // 4
                self.found.append(_Topic(self.row, topic_at, self.at - 4 * count, count))
        if self.is_flexible:
            self.tagged_section({each.tag: each for each in fields if each.tag is not None})


def _expanded(view: View, found: list[_Topic], is_read: Mask) -> Holdings:
    nothing = np.zeros(0, np.int64)
    topics = _Topic(*(np.concatenate(columns) for columns in zip(*found, strict=True))) if found else _Topic(*[nothing] * 4)
    by_row = np.argsort(topics.row, kind="stable")
    topics = _Topic(*(column[by_row] for column in topics))
    of_topic = np.repeat(np.arange(len(topics.row)), topics.partitions)
    # the first partition of each topic, less the partitions of the topics before it
    begin = topics.partitions_at - 4 * (np.cumsum(topics.partitions) - topics.partitions)
    partition = view.int32(begin[of_topic] + 4 * np.arange(len(of_topic))).astype(np.int64)
    return Holdings(topics.row, view.int64(topics.topic_at), view.int64(topics.topic_at + 8), of_topic, partition, is_read)
