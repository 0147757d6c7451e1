"""What each assignor would give a group of the warehouse."""

from __future__ import annotations

import csv
import json

import pytest

from groupcoord_spark.protocol.consumer_protocol import Subscription, encode_subscription
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import assignment, group, member, night, offset


def target_record(record_offset, group_id, member_id, target):
    """Return a row of group_records: the target assignment of a member."""
    value = {"topicPartitions": [{"topicId": topic_id, "partitions": partitions} for topic_id, partitions in target.items()]}
    return {
        "offsets_partition": 0,
        "incarnation": 0,
        "record_offset": record_offset,
        "group_id": group_id,
        "member_id": member_id,
        "key_type": 7,
        "key_name": "ConsumerGroupTargetAssignmentMemberKey",
        "value_version": 0,
        "value_json": json.dumps(value),
        "is_tombstone": False,
        "is_transactional": False,
        "key_size": 10,
        "value_size": 10,
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Provide a classic group of three, one of which holds too much; one of the new protocol; and groups nothing can be assigned to."""
    where = tmp_path_factory.mktemp("assign") / "warehouse"
    subscription = encode_subscription(Subscription(3, ("orders", "never-seen"), None, {}, -1, None))
    night(
        where,
        "prod",
        {
            "groups": [
                group("shop", state="Stable", protocol="range", generation=4, member_count=3),
                group("new", group_type="consumer", protocol_type="consumer", state="Stable", protocol="uniform", member_count=2),
                group("workers", protocol_type="connect", state="Stable", member_count=1),
                group("idle"),
            ],
            "members": [
                *(member("shop", name, subscription=subscription, subscribed_topics=["never-seen", "orders"]) for name in "abc"),
                member("new", "m-1", subscribed_topics=["orders"]),
                member("new", "m-2", subscribed_topic_regex="ord.*", rack_id="r1"),
                member("workers", "w"),
            ],
            "assignments": [
                *(assignment("shop", "a", "orders", number) for number in range(4)),
                assignment("shop", "b", "orders", 4),
                assignment("shop", "a", "orders", 5, kind="owned"),
                assignment("new", "m-1", "orders", 0),
                assignment("new", "m-1", "orders", 0, kind="target"),
                assignment("new", "m-2", "orders", 1, kind="target"),
            ],
            "committed_offsets": [
                offset("elsewhere", "orders", 7, 10, topic_id="MkTRaXlSRfWvFLT1M3hZWA"),
                offset("elsewhere", "orders", 2_147_483_647, 10),
                offset("elsewhere", "orders", -1, 10),
            ],
        },
    )
    return str(where)


def rows_of(place, *options):
    result = groupcoord("assign", "--warehouse", place, "--output", "json", *options)
    assert result.exit_code == 0, result.output
    return {row["assignor"]: row for row in map(json.loads, result.stdout.splitlines())}


def test_every_assignor_is_measured_against_what_members_hold(place):
    rows = rows_of(place, "--group", "shop")
    assert list(rows) == ["range", "roundrobin", "sticky", "cooperative-sticky", "uniform", "server-range"]
    for row in rows.values():
        assert (row["members"], row["partitions"], row["topics"]) == (3, 8, {"orders": 8})
        assert (row["least"], row["most"], row["spread"]) == (2, 3, 1)
        assert row["moved"] + row["assigned"] + row["kept"] == 8 and row["assigned"] == 3
        assert sum(row["partitions_by_member"].values()) == 8
    assert rows["sticky"]["moved"] == 1 < rows["roundrobin"]["moved"]
    assert (rows["sticky"]["rebalances"], rows["cooperative-sticky"]["rebalances"]) == (1, 2)


def test_what_is_assumed_is_said(place):
    told = groupcoord("assign", "--warehouse", place, "--group", "shop").stderr
    assert "Partitions of topics, by the highest that is assigned or committed in the cluster: orders 8." in told
    assert "Left out, since no partition of it (below 10000) was ever assigned or committed: never-seen." in told
    assert "Of the most even, fewest partitions are moved by" in told
    assert not groupcoord("assign", "--warehouse", place, "--group", "shop", "--quiet").stderr


def test_members_may_come_and_go(place):
    more = rows_of(place, "--group", "shop", "--members", "+2", "--assignor", "sticky")["sticky"]
    assert set(more["partitions_by_member"]) == {"a", "b", "c", "new-1", "new-2"} and more["spread"] == 1
    fewer = rows_of(place, "--group", "shop", "--members", "-1", "--assignor", "range")["range"]
    assert fewer["partitions_by_member"] == {"a": 4, "b": 4}
    result = groupcoord("assign", "--warehouse", place, "--group", "shop", "--members", "-3")
    assert "has 3 members: 3 fewer leaves nobody" in result.stderr + str(result.exception)


def test_partitions_may_be_said(place):
    row = rows_of(place, "--group", "shop", "--partitions", "orders=48", "--partitions", "never-seen=3", "--assignor", "roundrobin")
    assert row["roundrobin"]["topics"] == {"never-seen": 3, "orders": 48} and row["roundrobin"]["most"] == 17
    result = groupcoord("assign", "--warehouse", place, "--group", "shop", "--partitions", "other=3")
    assert "No member subscribes to 'other'." in result.stderr + str(result.exception)


def test_more_members_than_partitions_leaves_some_without(place):
    told = groupcoord("assign", "--warehouse", place, "--group", "shop", "--partitions", "orders=2").stderr
    assert "1 member has nothing to read whichever of them assigns." in told


def test_a_group_of_the_new_protocol_starts_from_its_target(place):
    result = groupcoord("assign", "--warehouse", place, "--group", "new", "--partitions", "orders=2", "--assignor", "uniform")
    assert [line.split() for line in result.stdout.splitlines()[1:3]] == [
        ["(now)", "uniform", "2", "1", "1", "0"],
        ["uniform", "2", "1", "1", "0", "0", "0", "0", "2", "1"],
    ]
    assert "Assumed to subscribe to the topics of their partitions, since the log names none: m-2." in result.stderr
    assert "no assignor heeds the members' racks" in result.stderr


def test_the_table_has_figures_and_members(place):
    result = groupcoord("assign", "--warehouse", place, "--group", "shop", "--assignor", "range", "--quiet")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["ASSIGNOR", "PARTITIONS", "MIN", "MAX", "SPREAD", "MOVED", "ASSIGNED", "RELEASED", "KEPT", "REBALANCES"],
        ["(now)", "range", "5", "0", "4", "4"],
        ["range", "8", "2", "3", "1", "1", "3", "0", "4", "1"],
        [],
        ["MEMBER", "(now)", "range"],
        ["a", "4", "3"],
        ["b", "1", "3"],
        ["c", "0", "2"],
        [],
        ["ASSIGNOR", "MEMBER", "PARTITIONS"],
        ["(now)", "a", "orders:0,1,2,3"],
        ["(now)", "b", "orders:4"],
        ["(now)", "c", "-"],
        ["range", "a", "orders:0,1,2"],
        ["range", "b", "orders:3,4,5"],
        ["range", "c", "orders:6,7"],
        [],
        ["ASSIGNOR", "FROM", "TO", "PARTITIONS"],
        ["range", "-", "b", "orders:5"],
        ["range", "-", "c", "orders:6,7"],
        ["range", "a", "b", "orders:3"],
    ]


def test_json_and_csv_name_every_partition_of_a_member(place):
    row = rows_of(place, "--group", "shop", "--assignor", "range")["range"]
    assignment = {"a": {"orders": [0, 1, 2]}, "b": {"orders": [3, 4, 5]}, "c": {"orders": [6, 7]}}
    assert row["assignment"] == assignment
    result = groupcoord("assign", "--warehouse", place, "--group", "shop", "--assignor", "range", "--output", "csv", "--quiet")
    (line,) = csv.DictReader(result.stdout.splitlines())
    assert json.loads(line["assignment"]) == assignment


def test_what_moves_is_named_with_its_owner_before_and_after(place):
    row = rows_of(place, "--group", "shop", "--assignor", "range")["range"]
    assert row["moves"] == [
        {"from": None, "to": "b", "partitions": {"orders": [5]}},
        {"from": None, "to": "c", "partitions": {"orders": [6, 7]}},
        {"from": "a", "to": "b", "partitions": {"orders": [3]}},
    ]


def test_a_new_member_has_its_own_subscription(place):
    joins = ("--member", "d topics=visits", "--partitions", "visits=2")
    row = rows_of(place, "--group", "shop", "--assignor", "range", *joins)["range"]
    assert row["assignment"]["d"] == {"visits": [0, 1]} and row["members"] == 4
    again = groupcoord("assign", "--warehouse", place, "--group", "shop", "--member", "a topics=orders")
    assert again.exit_code == 2 and "There are two members 'a': give each a name of its own." in again.stderr


def made_up(*options):
    result = groupcoord("assign", "--output", "json", "--quiet", *options)
    assert result.exit_code == 0, result.output
    return {row["assignor"]: row for row in map(json.loads, result.stdout.splitlines())}


def test_a_group_can_be_made_up_without_a_warehouse():
    rows = made_up(
        "--partitions", "t=6", "--member", "a topics=t owns=t:0,1,2", "--member", "b topics=t owns=t:3,4,5", "--member", "c topics=t"
    )
    assert rows["sticky"]["assignment"] == {"a": {"t": [0, 1]}, "b": {"t": [3, 4]}, "c": {"t": [2, 5]}}
    assert rows["cooperative-sticky"]["rebalances"] == 2
    assert rows["sticky"]["moves"] == [
        {"from": "a", "to": "c", "partitions": {"t": [2]}},
        {"from": "b", "to": "c", "partitions": {"t": [5]}},
    ]


def test_racks_of_members_and_replicas_count():
    group = ("--partitions", "t=4", "--member", "a topics=t rack=r1", "--member", "b topics=t rack=r2", "--assignor", "range")
    assert made_up(*group)["range"]["assignment"] == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}
    assert made_up(*group, "--replica-racks", "t=r1;r2")["range"]["assignment"] == {"a": {"t": [0, 2]}, "b": {"t": [1, 3]}}


def test_the_assignor_that_the_coordinator_elects_is_named():
    members = ("--member", "a topics=t assignors=range,sticky", "--member", "b topics=t assignors=sticky")
    said = groupcoord("assign", "--partitions", "t=2", *members).stderr
    assert "All members support sticky; the coordinator elects sticky." in said
    said = groupcoord("assign", "--partitions", "t=2", *members, "--member", "c topics=t assignors=roundrobin").stderr
    assert "c cannot join: INCONSISTENT_GROUP_PROTOCOL. The members before it all support sticky." in said


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "Name a group with --group, or make one up with --member and --partitions."),
        (("--member", "a topics=t"), "How many partitions does 't' have? Say so with --partitions t=N."),
        (("--member", "a"), "'a' has no topics: write for example 'c topics=orders'."),
        (("--member", "a topic=t"), "'a topic=t' has 'topic', which is not one of topics, assignors, rack, instance, owns."),
        (("--member", "a owns=t"), "'t' does not name partitions, such as orders:0,1;visits:3."),
        (
            ("--member", "a topics=t", "--partitions", "t=1", "--replica-racks", "u=r"),
            "No member subscribes to 'u'. Topics of the group: t.",
        ),
        (("--member", " "), "' ' does not begin with the name of a member: write for example 'c topics=orders'."),
        (("--member", "topics=t"), "'topics=t' does not begin with the name of a member"),
        (("--member", "a topics"), "'a topics' says nothing after topics=."),
        (("--member", "a topics=t topics=u"), "'a topics=t topics=u' has topics= twice: write all after one"),
        (("--member", "a topics=t assignors=rang"), "names the assignor 'rang'. Did you mean 'range'?"),
        (("--member", "a topics=t", "--member", "a topics=t"), "There are two members 'a': give each a name of its own."),
        (("--member", "a topics=t instance=i", "--member", "b topics=t instance=i"), "Members 'a' and 'b' both have the instance id 'i'."),
        (("--member", "a topics=t", "--partitions", "t=1", "--partitions", "u=1"), "No member subscribes to 'u'. Topics of the group: t."),
        (("--partitions", "t=1", "--partitions", "t=2"), "--partitions gives 't' two numbers of partitions: 1 and 2."),
        (("--replica-racks", "t"), "'t' does not name racks of replicas, such as 'orders=r1,r2;r2,r3'."),
    ],
)
def test_a_mistake_in_a_made_up_group_is_one_sentence(options, sentence):
    result = groupcoord("assign", *options)
    assert result.exit_code == 2 and sentence in " ".join(result.stderr.split())


def test_claims_that_no_assignor_would_have_made_are_remarked_on():
    said = groupcoord(
        "assign", "--partitions", "t=2", "--member", "a topics=t owns=t:0;u:0", "--member", "b topics=t owns=t:0,7", "--assignor", "range"
    ).stderr.splitlines()
    assert said[:3] == [
        "a owns u:0, and does not subscribe to the topic.",
        "a and b both own t:0.",
        "b owns t:7, and the topic has 2 partitions.",
    ]


@pytest.mark.parametrize(("listed", "kept"), [([20, 4], 20), ([4, 20], 4)])
def test_uniform_went_by_ascending_partitions_where_the_target_record_lists_them_otherwise(tmp_path, listed, kept):
    topic_id = "MkTRaXlSRfWvFLT1M3hZWA"
    place = str(tmp_path / "warehouse")
    held = [*range(5, 9), *listed]
    rows = {
        "groups": [group("g", group_type="consumer", state="Stable", protocol="uniform", member_count=1)],
        "members": [member("g", "m-1", subscribed_topics=["orders"])],
        "assignments": [assignment("g", "m-1", "orders", number, kind="target", topic_id=topic_id) for number in held],
        "group_records": [
            target_record(3, "g", "m-1", {topic_id: [1, 2]}),
            target_record(4, "g", "m-1", {topic_id: held}),
        ],
    }
    night(place, "prod", rows)
    row = rows_of(place, "--group", "g", "--members", "+20", "--partitions", "orders=21", "--assignor", "uniform")["uniform"]
    assert row["assignment"]["m-1"] == {"orders": [kept]}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("gone", "Group 'gone' does not exist"), ("idle", "has no members"), ("workers", "is of the kind 'connect'")],
)
def test_a_group_that_nothing_can_be_assigned_to_is_refused(place, name, sentence):
    result = groupcoord("assign", "--warehouse", place, "--group", name)
    assert result.exit_code == 1 and sentence in result.stderr + str(result.exception)


@pytest.mark.parametrize("options", [("--members", "2"), ("--partitions", "orders"), ("--partitions", "orders=0"), ("--assignor", "best")])
def test_options_that_make_no_sense_are_usage_errors(place, options):
    assert groupcoord("assign", "--warehouse", place, "--group", "shop", *options).exit_code == 2
