"""Consumer groups that are replayed without the owners of their partitions, and what they know when the owners count again."""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.pipeline.replay.unchecked_ownership import KeptRecordsCoordinator, UncheckedConsumerGroup
from tests.coordinator.records import GROUP, Record, consumer_member, current_assignment, group_epoch

TWO_MEMBERS = [group_epoch(5), consumer_member("a", "t"), consumer_member("b", "t")]
THIS_GROUP, NO_GROUP = frozenset({GROUP}), frozenset[str]()


def applied(coordinator: KeptRecordsCoordinator, records: Iterable[Record], first_offset: int = 0) -> list[tuple[int | None, str]]:
    """(record offset, rule) of the warnings after the records."""
    for record_offset, record in enumerate(records, first_offset):
        record.apply_to(coordinator, record_offset)
    return [(warning.record_offset, warning.code) for warning in coordinator.finish().warnings()]


def the_group(coordinator: KeptRecordsCoordinator) -> UncheckedConsumerGroup:
    group = coordinator.group(GROUP)
    assert isinstance(group, UncheckedConsumerGroup)
    return group


def test_two_owners_of_a_partition_are_refused_in_a_group_that_is_checked() -> None:
    coordinator = KeptRecordsCoordinator(JAVA)
    assert applied(coordinator, [*TWO_MEMBERS, current_assignment("a", 5, 0), current_assignment("b", 5, 0)]) == [(4, "R-3.14")]
    assert not the_group(coordinator).is_orderly


def test_a_group_without_collisions_is_replayed_without_owners() -> None:
    coordinator = KeptRecordsCoordinator(JAVA)
    coordinator.rule_out_collisions(THIS_GROUP, NO_GROUP)
    assert applied(coordinator, [*TWO_MEMBERS, current_assignment("a", 5, 0), current_assignment("b", 5, 0)]) == []


def test_owners_are_known_again_when_collisions_may_come() -> None:
    coordinator = KeptRecordsCoordinator(JAVA)
    coordinator.rule_out_collisions(THIS_GROUP, NO_GROUP)
    assert applied(coordinator, [*TWO_MEMBERS, current_assignment("a", 5, 0)]) == []
    coordinator.rule_out_collisions(NO_GROUP, THIS_GROUP)
    assert applied(coordinator, [current_assignment("b", 5, 0)], first_offset=4) == [(4, "R-3.14")]


def test_a_group_that_hands_its_partitions_on_stays_orderly() -> None:
    coordinator = KeptRecordsCoordinator(JAVA)
    handed_on = [current_assignment("a", 5, 0, 1), current_assignment("a", 5, 1), current_assignment("b", 5, 0)]
    assert applied(coordinator, [*TWO_MEMBERS, *handed_on]) == []
    assert the_group(coordinator).is_orderly
