"""The request side of the classic group coordinator, as a machine with a clock of its own.

It promises that the same requests at the same moments get the answers a broker of the chosen release gives, in the same order, and
that the records it writes are that broker's: ``Simulator`` is driven request by request, ``simulate`` turns a list of events into a
timeline. No thread, no network and no wall clock is involved; a run is a function of its input.
"""

from groupcoord_spark.simulator.actions import (
    Action,
    BeginLoad,
    CleanUp,
    DeleteTopic,
    FailAppends,
    LoadPartition,
    LosePartition,
    SetActive,
)
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.records import WrittenRecord
from groupcoord_spark.simulator.release import Release, release_for
from groupcoord_spark.simulator.settings import Settings, Topic, read_settings
from groupcoord_spark.simulator.simulator import Event, Simulator, TimelineEntry, simulate
from groupcoord_spark.simulator.states import State

__all__ = [
    "Action",
    "BeginLoad",
    "Call",
    "CleanUp",
    "DeleteTopic",
    "Error",
    "Event",
    "FailAppends",
    "LoadPartition",
    "LosePartition",
    "Release",
    "SetActive",
    "Settings",
    "Simulator",
    "State",
    "TimelineEntry",
    "Topic",
    "WrittenRecord",
    "read_settings",
    "release_for",
    "simulate",
]
