"""The state of groups in a running broker: members, epochs, assignments, timers, and the records of one group."""

from groupcoord_spark.simulator.groups.classic_group import CONSUMER, ClassicGroup, ClassicGroupMember, GroupState, Protocols
from groupcoord_spark.simulator.groups.clock import Clock, Timer, TimerKind
from groupcoord_spark.simulator.groups.consumer_group import ConsumerGroup
from groupcoord_spark.simulator.groups.group import Group
from groupcoord_spark.simulator.groups.modern_group import ModernGroup
from groupcoord_spark.simulator.groups.share_group import ShareGroup
from groupcoord_spark.simulator.groups.streams_group import StreamsGroup
