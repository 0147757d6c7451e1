"""The topologies that scripts about streams groups send. ``{group}`` in a topic stands for the group."""

from __future__ import annotations

from msgspec.structs import replace

from groupcoord_spark.simulator.messages.requests import CopartitionGroup, InternalTopic, Subtopology, Topology

_STORE = InternalTopic("{group}-store-changelog", 0, 1, (("cleanup.policy", "compact"),))
_BY_KEY = "{group}-by-key-repartition"

TOPOLOGIES = {
    "plain": Topology(0, (Subtopology("0", ("t",)),)),
    "newer": Topology(1, (Subtopology("0", ("t",)),)),
    "other": Topology(0, (Subtopology("0", ("u",)),)),
    "negative": Topology(-1, (Subtopology("0", ("t",)),)),
    "twice": Topology(0, (Subtopology("0", ("t",)), Subtopology("0", ("u",)))),
    "two": Topology(0, (Subtopology("0", ("t",)), Subtopology("1", ("u",)))),
    "two-turned": Topology(0, (Subtopology("1", ("u",)), Subtopology("0", ("t",)))),
    "merged": Topology(0, (Subtopology("0", ("t", "u")),)),
    "joined": Topology(0, (Subtopology("0", ("t", "u"), copartition_groups=(CopartitionGroup((0, 1)),)),)),
    "joined-nowhere": Topology(0, (Subtopology("0", ("t",), copartition_groups=(CopartitionGroup((3,)),)),)),
    "no-source": Topology(0, (Subtopology("0"),)),
    "missing": Topology(0, (Subtopology("0", ("{group}-in",)),)),
    "expression": Topology(0, (Subtopology("0", (), ("t.*",)),)),
    "stateful": Topology(0, (Subtopology("0", ("t",), state_changelog_topics=(_STORE,)),)),
    "fixed-changelog": Topology(0, (Subtopology("0", ("t",), state_changelog_topics=(InternalTopic("{group}-c", 3),)),)),
    "repartitioned": Topology(
        0,
        (
            Subtopology("0", ("t",), repartition_sink_topics=(_BY_KEY,)),
            Subtopology("1", (), repartition_source_topics=(InternalTopic(_BY_KEY),), state_changelog_topics=(_STORE,)),
        ),
    ),
    "repartitioned-to-5": Topology(
        0,
        (
            Subtopology("0", ("t",), repartition_sink_topics=(_BY_KEY,)),
            Subtopology("1", (), repartition_source_topics=(InternalTopic(_BY_KEY, 5),)),
        ),
    ),
    "joined-with-repartitioned": Topology(
        0,
        (
            Subtopology("0", ("t",), repartition_sink_topics=(_BY_KEY,)),
            Subtopology("1", ("u",), (), (), (), (InternalTopic(_BY_KEY),), (CopartitionGroup((0,), (0,)),)),
        ),
    ),
    "joined-with-fixed": Topology(
        0,
        (
            Subtopology("0", ("t",), repartition_sink_topics=(_BY_KEY,)),
            Subtopology("1", ("u",), (), (), (), (InternalTopic(_BY_KEY, 5),), (CopartitionGroup((0,), (0,)),)),
        ),
    ),
    "joined-of-repartitioned": Topology(
        0,
        (
            Subtopology("0", ("t",), repartition_sink_topics=("{group}-a",)),
            Subtopology("1", ("u",), repartition_sink_topics=("{group}-b",)),
            Subtopology("2", (), (), (), (), (InternalTopic("{group}-a"), InternalTopic("{group}-b")), (CopartitionGroup((), (0, 1)),)),
        ),
    ),
    "joined-of-fixed": Topology(
        0,
        (
            Subtopology("0", ("t",), repartition_sink_topics=("{group}-a", "{group}-b")),
            Subtopology(
                "1", (), (), (), (), (InternalTopic("{group}-a", 2), InternalTopic("{group}-b", 3)), (CopartitionGroup((), (0, 1)),)
            ),
        ),
    ),
    "no-sink": Topology(0, (Subtopology("0", ("t",), repartition_source_topics=(InternalTopic("{group}-x"),)),)),
    "loop": Topology(
        0,
        (
            Subtopology("0", (), (), (), ("{group}-a",), (InternalTopic("{group}-b"),)),
            Subtopology("1", (), (), (), ("{group}-b",), (InternalTopic("{group}-a"),)),
        ),
    ),
    "of-kafka": Topology(0, (Subtopology("0", ("__consumer_offsets",)),)),
    "no-name": Topology(0, (Subtopology("0", ("t!",)),)),
}


def topology_named(name: str, group: str) -> Topology:
    """Return a topology, with the group's name in its topics."""
    topology = TOPOLOGIES[name]
    return replace(topology, subtopologies=tuple(_of_group(one, group) for one in topology.subtopologies))


def _of_group(one: Subtopology, group: str) -> Subtopology:
    def named(topics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(topic.format(group=group) for topic in topics)

    def renamed(topics: tuple[InternalTopic, ...]) -> tuple[InternalTopic, ...]:
        return tuple(topic._replace(name=topic.name.format(group=group)) for topic in topics)

    return replace(
        one,
        source_topics=named(one.source_topics),
        state_changelog_topics=renamed(one.state_changelog_topics),
        repartition_sink_topics=named(one.repartition_sink_topics),
        repartition_source_topics=renamed(one.repartition_source_topics),
    )
