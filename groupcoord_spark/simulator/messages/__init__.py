"""What goes over the wire and into the log: requests and answers with their errors, records, and the expressions that requests carry."""

from groupcoord_spark.simulator.messages.calls import Call
from groupcoord_spark.simulator.messages.errors import Error, RefusedError, refuse_if
from groupcoord_spark.simulator.messages.written_records import RecordToWrite, WrittenRecord
