"""Real brokers' answers about the golden logs: no difference to what the records replay to, and each planted one is found."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.coordinator import semantics_for
from groupcoord_spark.verification import Answers, BrokerComparison, StateOfRun, compare, read_answers, write_answers
from tests.coordinator.records import GOLDEN
from tests.verification.golden import STATE_TABLES, answers_of, state_in, write_warehouse
from tests.warehouse.nights import few_tables

CORPORA = [
    *("classic-modern", "transactions", "compacted", "connect", "codec-gzip", "midflight-torn", "kip848", "convert", "share", "streams"),
    *("expiry", "expiry/expired", "fuzz-1", "fuzz-1/scala", "era-0.10.2", "era-0.11", "era-2.0", "era-2.3", "era-3.9"),
]


@pytest.fixture(scope="module")
def warehouses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    made: dict[str, str] = {}

    def warehouse_of(corpus: str) -> str:
        if corpus not in made:
            made[corpus] = write_warehouse(corpus, tmp_path_factory.mktemp("golden") / "warehouse")
        return made[corpus]

    with few_tables([*STATE_TABLES, "runs", "log_ends"]):
        yield warehouse_of


def as_file(tmp_path: Path, answers: dict[str, Any]) -> Answers:
    (tmp_path / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    return read_answers(str(tmp_path / "answers.json"))


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_brokers_own_answers_are_no_difference(corpus: str, warehouses: Callable[[str], str], tmp_path: Path) -> None:
    found = compare(state_in(warehouses(corpus)), as_file(tmp_path, answers_of(corpus)))
    assert found.differences == []
    assert found.groups > 3
    assert found.offsets > 5


def test_partitions_yet_to_be_given_up_were_assigned_ones_whatever_the_release(warehouses: Callable[[str], str], tmp_path: Path) -> None:
    state, answers = state_in(warehouses("kip848-4.2")), as_file(tmp_path, answers_of("kip848-4.2"))
    assert compare(state, answers, semantics=semantics_for("java", "4.2.0")).differences == []
    found = compare(state, answers, semantics=semantics_for("java", "4.3.1")).differences
    assert [(each.group, each.ours, each.theirs) for each in found] == [("k-reconciling", "orders:2,3,4,5", None)]


@pytest.mark.parametrize("corpus", ["era-0.8.2", "era-0.9", "era-0.10.0"])
def test_groups_that_a_broker_does_not_list_by_kind_are_told_by_their_number(
    corpus: str, warehouses: Callable[[str], str], tmp_path: Path
) -> None:
    # brokers before 0.10.1 list no group that has offsets alone
    found = compare(state_in(warehouses(corpus)), as_file(tmp_path, {**answers_of(corpus), "protocol_types": ["consumer"]}))
    assert found.differences == []
    assert len(found.unasked) >= 4


def test_answers_survive_their_file(tmp_path: Path) -> None:
    more = {"asked_at_ms": [1, 2], "protocol_types": [""], "pending_topics": {"k": ["orders"]}}
    written = as_file(tmp_path, {**answers_of("kip848"), **more})
    write_answers(str(tmp_path / "again.json"), written)
    again = read_answers(str(tmp_path / "again.json"))
    assert {name: getattr(again, name) for name in Answers.__slots__ if name != "source"} == {
        name: getattr(written, name) for name in Answers.__slots__ if name != "source"
    }


def test_answers_of_the_sample_are_those_of_its_broker() -> None:
    assert json.loads((GOLDEN / "classic-modern" / "answers.json").read_text(encoding="utf-8")) == answers_of("classic-modern")


Plant = Callable[[dict[str, Any]], object]


def group_named(answers: dict[str, Any], group_id: str) -> dict[str, Any]:
    return next(group for group in answers["groups"] if group["group"] == group_id)


def member_of(answers: dict[str, Any], group_id: str) -> dict[str, Any]:
    member: dict[str, Any] = group_named(answers, group_id)["members"][0]
    return member


def offset_of(answers: dict[str, Any], group_id: str) -> dict[str, Any]:
    return next(row for row in answers["offsets"] if row["group"] == group_id)


PLANTED: dict[str, tuple[str, Plant, str]] = {
    "a group is gone": ("k-empty", lambda a: a["groups"].remove(group_named(a, "k-empty")), "group"),
    "a group is new": ("new", lambda a: a["groups"].append({"group": "new", "type": "classic", "state": "Empty", "members": []}), "group"),
    "type": ("k-empty", lambda a: group_named(a, "k-empty").update(type="classic"), "type"),
    "state": ("k-range", lambda a: group_named(a, "k-range").update(state="Empty"), "state"),
    "assignor": ("k-range", lambda a: group_named(a, "k-range").update(protocol="uniform"), "protocol"),
    "epoch": ("k-range", lambda a: group_named(a, "k-range").update(generation=99), "generation"),
    "assignment epoch": ("k-range", lambda a: group_named(a, "k-range").update(assignment_epoch=99), "assignment epoch"),
    "a member is gone": ("k-range", lambda a: group_named(a, "k-range")["members"].pop(), "member "),
    "a member is new": ("k-empty", lambda a: group_named(a, "k-empty")["members"].append({"member_id": "m"}), "member m"),
    "instance": ("k-static", lambda a: member_of(a, "k-static").update(instance_id=None), "instance id of "),
    "host": ("k-range", lambda a: member_of(a, "k-range").update(client_host="/10.1.1.1"), "client host of "),
    "rack": ("k-static", lambda a: member_of(a, "k-static").update(rack_id="elsewhere"), "rack id of "),
    "member epoch": ("k-range", lambda a: member_of(a, "k-range").update(epoch=0), "epoch of "),
    "subscription": ("k-range", lambda a: member_of(a, "k-range")["subscribed_topics"].append("more"), "subscribed topics of "),
    "regex": ("k-regex", lambda a: member_of(a, "k-regex").update(subscribed_regex="pay.*"), "subscribed regex of "),
    "assignment": ("k-range", lambda a: member_of(a, "k-range")["assignment"].pop(), "assignment of "),
    "target": ("k-range", lambda a: member_of(a, "k-range")["target_assignment"].append(["orders", [77]]), "target assignment of "),
    "an offset is gone": ("k-range", lambda a: a["offsets"].remove(offset_of(a, "k-range")), "offset of "),
    "an offset is new": ("k-range", lambda a: a["offsets"].append({**offset_of(a, "k-range"), "partition": 77}), "offset of "),
    "offset": ("k-range", lambda a: offset_of(a, "k-range").update(offset=123_456), "offset of "),
    "leader epoch": ("k-range", lambda a: offset_of(a, "k-range").update(leader_epoch=55), "leader epoch of "),
    "metadata": ("k-range", lambda a: offset_of(a, "k-range").update(metadata="another note"), "metadata of "),
    "open transaction": (
        "k-range",
        lambda a: a["pending"].append({"group": "k-range", "topic": "orders", "partition": 0}),
        "transaction of orders-0",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_difference_is_found_and_no_other(planted: str, warehouses: Callable[[str], str], tmp_path: Path) -> None:
    group_id, plant, what = PLANTED[planted]
    answers = copy.deepcopy(answers_of("kip848"))
    plant(answers)
    found = compare(state_in(warehouses("kip848")), as_file(tmp_path, answers)).differences
    assert [difference.group for difference in found] == [group_id]
    assert found[0].what.startswith(what)
    assert found[0].ours != found[0].theirs


def test_transaction_that_is_open_for_us_alone_is_a_difference(warehouses: Callable[[str], str], tmp_path: Path) -> None:
    answers = answers_of("transactions")
    closed = answers["pending"].pop()
    found = compare(state_in(warehouses("transactions")), as_file(tmp_path, answers)).differences
    assert found == [(closed["group"], f"transaction of {closed['topic']}-{closed['partition']}", "open", None)]


def test_transactions_of_topics_that_were_not_asked_about_are_not_compared(warehouses: Callable[[str], str], tmp_path: Path) -> None:
    answers = {**answers_of("transactions"), "pending": [], "pending_topics": {"eos-a": ["payments"]}}
    found = compare(state_in(warehouses("transactions")), as_file(tmp_path, answers))
    assert (found.differences, found.pending) == ([], 0)


def test_difference_of_an_assignment_shows_what_the_other_side_lacks(warehouses: Callable[[str], str], tmp_path: Path) -> None:
    answers = copy.deepcopy(answers_of("kip848"))
    member_of(answers, "k-range")["assignment"] = [["orders", [0, 1, 7]], ["orders-eu", [0]]]
    found: BrokerComparison = compare(state_in(warehouses("kip848")), as_file(tmp_path, answers))
    assert [(difference.ours, difference.theirs) for difference in found.differences] == [("orders:2", "orders:7")]


def test_metadata_is_the_same_that_a_client_in_c_cuts_at_a_nul(tmp_path: Path) -> None:
    offset = {"committed_offset": 5, "leader_epoch": None, "metadata": "a note\0more"}
    ours = StateOfRun({}, {}, {}, {("g", "t", 0): offset}, frozenset())
    told = {"group": "g", "topic": "t", "partition": 0, "offset": 5, "leader_epoch": -1}
    for metadata, differences in (("a note", 0), ("a note\0more", 0), ("a note\0", 1), ("a", 1), ("", 1)):
        answers = as_file(tmp_path, {"offsets": [{**told, "metadata": metadata}]})
        assert len(compare(ours, answers).differences) == differences


def test_what_was_not_told_is_not_compared(warehouses: Callable[[str], str], tmp_path: Path) -> None:
    groups = [{"group": group["group"]} for group in answers_of("kip848")["groups"]]
    found = compare(state_in(warehouses("kip848")), as_file(tmp_path, {"groups": groups}))
    assert (found.differences, found.offsets, found.members) == ([], 0, 0)
