"""The rules of this project as functions from DataFrame to DataFrame, for notebooks and for jobs of one's own.

``decode`` gives one row for each record, with a struct for each kind of value. ``replay`` gives the state of the coordinator, ``expire``
what a cleanup removes from that state, and ``rebalances`` how the groups rebalanced. The functions run the code of the nightly, so each
frame has the rows, types and comments of the nightly's table of the same name. They take any frame with the columns of Spark's Kafka source
or of the source ``consumer_offsets``, and write nothing.
"""

from groupcoord_spark.dataframes.expiration import Expirations, expire
from groupcoord_spark.dataframes.records import decode, decode_error, of_groups, register
from groupcoord_spark.dataframes.segments import read_segments
from groupcoord_spark.dataframes.state import State, rebalances, replay

__all__ = ["Expirations", "State", "decode", "decode_error", "expire", "of_groups", "read_segments", "rebalances", "register", "replay"]
