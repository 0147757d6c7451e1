"""Requests, answers, errors and records, and the regular expressions in requests."""

from groupcoord_spark.simulator.messages.calls import Call
from groupcoord_spark.simulator.messages.errors import Error, RefusedError, refuse_if
from groupcoord_spark.simulator.messages.written_records import RecordToWrite, WrittenRecord
