"""A simulated group coordinator for classic, consumer, share and streams groups, with simulated time.

The same requests at the same times get the answers that a broker of the chosen release gives, in the same order, and write the same records
to ``__consumer_offsets``. ``Simulator`` takes one request at a time and reports what each event does. It uses no threads, no network and no
system clock, so the same input always gives the same output.
"""

from groupcoord_spark.simulator.broker.actions import (
    AddPartitions,
    BeginLoad,
    BrokerAction,
    CleanUp,
    ConfigureGroup,
    CreateTopic,
    DeleteTopic,
    FailAppends,
    LoadPartition,
    LosePartition,
    SetActive,
)
from groupcoord_spark.simulator.broker.release import Release, release_for
from groupcoord_spark.simulator.broker.settings import ClusterTopic, Settings, read_settings
from groupcoord_spark.simulator.groups import GroupState
from groupcoord_spark.simulator.messages import Call, Error, WrittenRecord
from groupcoord_spark.simulator.simulator import Simulator, TimelineEntry
