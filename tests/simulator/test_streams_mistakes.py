"""Scenarios of streams groups with mistakes: each is refused by one sentence that names the line and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator import release_for
from groupcoord_spark.simulator.scenario import play, read_scenario, scenario_text
from tests.simulator.test_scenario_mistakes import refusal

GOOD = """title: A mistake
group: g
topics: {orders: 4, clicks: 4}
topology:
  subtopologies:
    "0": {source_topics: [orders, clicks], copartition_groups: [[orders, clicks]]}
steps:
  - {at: 0s, configure_group: {streams.num.standby.replicas: 1}}
  - {at: 1s, send: StreamsGroupHeartbeat, with: {member_id: a, member_epoch: 0}}
  - {at: 9s, send: StreamsGroupHeartbeat, with: {member_id: a, member_epoch: 1, active_tasks: {"0": [0]}}}
"""

CHANGES = {
    "a misspelt key of a topology": (
        "  subtopologies:",
        "  subtopology:",
        "a topology has 'subtopology', which means nothing there. Did you mean",
    ),
    "no subtopologies": (
        'topology:\n  subtopologies:\n    "0": {source_topics: [orders, clicks], copartition_groups: [[orders, clicks]]}',
        "topology: {epoch: 1}",
        "`topology` of the file: a topology needs `subtopologies`: subtopologies such as {'0': {source_topics: [orders]}}.",
    ),
    "an id that is a number": ('    "0":', "    0:", "has the key 0, which YAML does not read as text. Put it in quotes."),
    "a misspelt list of topics": (
        "{source_topics:",
        "{source_topic:",
        "subtopology '0' has 'source_topic', which means nothing there. Did you",
    ),
    "a list of topics that is none": (
        "[orders, clicks], co",
        "7, co",
        "`source_topics` of subtopology '0' is 7, not a name, or a list of names.",
    ),
    "no source": ("[[orders, clicks]]", "[[orders, click]]", "names 'click', which is not a source of it. Did you mean 'clicks'?"),
    "one group that is not a list": (
        "[[orders, clicks]]",
        "orders",
        "`copartition_groups` of subtopology '0' is 'orders', not lists such as [[orders, clicks]].",
    ),
    "an epoch below 0": ("topology:\n", "topology:\n  epoch: -1\n", "`epoch` of a topology is -1, not a whole number, 0 or more."),
    "a misspelt setting of the group": (
        "streams.num.standby.replicas: 1",
        "streams.num.standbys: 1",
        "the streams group has 'streams.num.standbys', which means nothing there. Did you mean 'streams.num.standby.replicas'?",
    ),
    "a word for a setting": (
        "replicas: 1",
        "replicas: one",
        "`streams.num.standby.replicas` of the streams group is 'one', not a whole number, 0 or more.",
    ),
    "tasks in a list": (
        '{"0": [0]}',
        "[0]",
        "`active_tasks` of `with` of step 3 (send StreamsGroupHeartbeat) is [0], not tasks by subtopology",
    ),
    "a task that is not a list": ('{"0": [0]}', '{"0": 0}', "write for example {'0': [0, 1]}, not {'0': 0}."),
    "no topics": ("topics: {orders: 4, clicks: 4}\n", "", "A streams group needs the topics of the cluster: name those that exist, with"),
    "no member id": ("{member_id: a, member_epoch: 0}", "{member_epoch: 0}", "needs `member_id`: a text."),
    "an endpoint without a port": (
        "member_epoch: 0}",
        "member_epoch: 0, user_endpoint: here}",
        "is 'here', not a host and a port such as app-1:8080.",
    ),
    "tags in a list": ("member_epoch: 0}", "member_epoch: 0, client_tags: [z]}", "is ['z'], not tags such as {zone: a}."),
    "a misspelt field": ("member_epoch: 0}", "member_epoch: 0, standby: {}}", "has 'standby', which means nothing there."),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_mistake_is_named(name: str, tmp_path: Path) -> None:
    good, bad, sentence = CHANGES[name]
    assert good in GOOD
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace(good, bad, 1))
    refused_by = refusal(path)
    assert refused_by.startswith(f"Scenario {path}, line ") and sentence in refused_by
    assert "\n" not in refused_by and len(refused_by) < 700


def test_a_release_without_streams_groups_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    with pytest.raises(UsageError, match=r"Kafka 4\.1\.1 does not know StreamsGroupHeartbeat: it came with 4\.2"):
        play(read_scenario(scenario_text(str(path)), str(path)), release_for(None, "4.1.1"))


def test_the_scenario_without_a_mistake_plays(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    outcome = play(read_scenario(scenario_text(str(path)), str(path)), release_for())
    assert next(str(row.answer) for row in outcome.rows if row.request).startswith("NONE epoch 1")
