"""``groupcoord describe``: columns and rows of kafka-consumer-groups --describe."""

from __future__ import annotations

import csv
import json

import pytest

from tests.cli.warehouse import groupcoord, modern
from tests.warehouse.nights import AS_OF_MS, DAY_MS, assignment, group, member, night, offset

OFFSET_FORM = "{:<15} {:<15} {:<10} {:<15} {:<15} {:<15} {:<15} {:<15} {}"


def described(place, *options):
    result = groupcoord("describe", *options, "--warehouse", place)
    assert result.exit_code == 0, result.stderr
    return result


def test_offsets_show_members_by_size_then_partitions_nobody_reads(place):
    result = described(place, "--group", "plain")
    names = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    titles = OFFSET_FORM.format(*names)
    assert result.stdout.split("\n") == [
        "",
        titles,
        OFFSET_FORM.format("plain", "orders", 1, "-", "-", "-", "app-2-bb", "/10.0.0.2", "app-2"),
        OFFSET_FORM.format("plain", "orders", 2, 12, "-", "-", "app-2-bb", "/10.0.0.2", "app-2"),
        OFFSET_FORM.format("plain", "orders", 10, "-", "-", "-", "app-2-bb", "/10.0.0.2", "app-2"),
        OFFSET_FORM.format("plain", "orders", 0, 10, "-", "-", "app-1-aa", "/10.0.0.1", "app-1"),
        OFFSET_FORM.format("plain", "gone", 0, 99, "-", "-", "-", "-", "-"),
        "",
    ]
    assert result.stderr == ""


def test_verbose_offsets_add_the_leader_epoch(place):
    lines = described(place, "--group", "plain", "--offsets", "--verbose").stdout.splitlines()
    assert lines[1].split()[3] == "LEADER-EPOCH"
    assert [line.split()[3] for line in lines[2:]] == ["-", "4", "-", "-", "-"]


def test_a_partition_still_to_be_revoked_is_its_members(place):
    result = described(place, "--group", "new")
    assert [line.split()[:4] for line in result.stdout.splitlines()[2:]] == [["new", "orders", "0", "5"], ["new", "orders", "1", "-"]]
    assert result.stderr == "\nWarning: Consumer group 'new' is rebalancing.\n"


@pytest.mark.parametrize(("release", "partitions"), [("4.0.1", 1), ("4.2", 1), ("4.3", 2), ("4.4.0", 2)])
def test_a_partition_still_to_be_revoked_is_its_members_only_where_the_release_says_so(tmp_path, release, partitions):
    rows = {
        "groups": [modern("new", "consumer", state="Reconciling", protocol="uniform", generation=5, assignment_epoch=4, member_count=1)],
        "members": [member("new", "m-old", uses_classic_protocol=True, member_epoch=4)],
        "assignments": [assignment("new", "m-old", "orders", 0), assignment("new", "m-old", "orders", 1, kind="pending_revocation")],
    }
    night(tmp_path / "w", "prod", rows, broker_version=release)
    lines = described(str(tmp_path / "w"), "--group", "new", "--members").stdout.splitlines()
    assert lines[2].split()[-1] == str(partitions)


def test_nights_of_different_releases_are_described_each_by_its_own(tmp_path):
    rows = {
        "groups": [modern("new", "consumer", member_count=1)],
        "members": [member("new", "m")],
        "assignments": [assignment("new", "m", "orders", 1, kind="pending_revocation")],
    }
    for day, release in enumerate(["4.2.0", "4.3.1"]):
        night(tmp_path / "w", "prod", rows, broker_version=release, as_of_ms=AS_OF_MS + day * DAY_MS)
    assert described(str(tmp_path / "w"), "--group", "new", "--at", str(AS_OF_MS)).stdout == ""
    assert "orders" in described(str(tmp_path / "w"), "--group", "new").stdout


@pytest.mark.parametrize("release", ["4.3", "3.9", "2.8.2"])
def test_nights_that_earlier_versions_wrote_stay_readable(tmp_path, release):
    name = "java" if release.startswith("4") else "scala"
    night(tmp_path / "w", "prod", {"groups": [group("idle")]}, semantics=name, broker_version=release)
    assert described(str(tmp_path / "w"), "--group", "idle", "--state").stdout.splitlines()[2].split()[0] == "idle"


def test_a_night_of_a_release_that_does_not_exist_is_named(tmp_path):
    night(tmp_path / "w", "prod", {"groups": [group("idle")]}, broker_version="9.9")
    result = groupcoord("describe", "--all-groups", "--warehouse", str(tmp_path / "w"))
    assert result.exit_code == 1
    assert "broker version '9.9' is not a release of Kafka" in result.stderr
    assert "Run the nightly again with a release that exists." in result.stderr


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("idle", "Consumer group 'idle' has no active members."),
        ("app", "Warning: Streams group 'app' is not ready."),
    ],
)
def test_remarks_go_to_stderr_and_quiet_leaves_them_out(place, name, remark):
    assert described(place, "--group", name).stderr == f"\n{remark}\n"
    assert described(place, "--group", name, "--quiet").stderr == ""


def test_a_group_without_offsets_and_members_has_no_lines(place):
    assert described(place, "--group", "idle").stdout == ""


def test_tasks_are_no_partitions_of_topics(place):
    lines = described(place, "--group", "app", "--verbose").stdout.splitlines()[2:]
    assert [line.split()[1:4] for line in lines] == [["lines", "0", "7"]]
    assert described(place, "--group", "workers").stdout == ""


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_a_group_without_lines_says_why_on_stderr(place, output):
    result = described(place, "--group", "workers", "--output", output)
    assert result.stderr.strip().startswith(
        "Connect group 'workers' has no lines: its members are workers, which have connectors and tasks"
    )
    assert result.stderr.strip().count("\n") == 0
    assert [line for line in result.stdout.splitlines() if not line.startswith("group,")] == []
    assert described(place, "--group", "workers", "--output", output, "--quiet").stderr == ""


def topology(record_offset, epoch, **topics):
    """Return a row of group_records: what each subtopology reads; names that end in -repartition are repartition topics."""
    subtopologies = [
        {
            "subtopologyId": name,
            "sourceTopics": [topic for topic in read if not topic.endswith("-repartition")],
            "repartitionSourceTopics": [{"name": topic} for topic in read if topic.endswith("-repartition")],
        }
        for name, read in topics.items()
    ]
    place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset, "group_id": "app", "key_type": 23}
    value = json.dumps({"epoch": epoch, "subtopologies": subtopologies})
    return {**place, "value_json": value, "value_version": 0, "is_tombstone": False, "is_transactional": False, "key_size": 5}


def streams(tmp_path, **tables):
    """Return a live streams group of two members: tasks 0_0, 0_1, 1_0 and 2_0 are the first one's, 0_2 and 2_1 the other's."""
    tasks = {"one": [("0", 0), ("0", 1), ("1", 0), ("2", 0)], "two": [("0", 2), ("2", 1)]}
    rows = {
        "groups": [group("app", group_type="streams", state="Stable", protocol_type="streams", topology_epoch=1, member_count=2)],
        "members": [member("app", name, client_id=f"client-{name}", member_epoch=3) for name in tasks],
        "assignments": [
            *(assignment("app", name, None, n, subtopology=sub, task_type="active") for name, of in tasks.items() for sub, n in of),
            assignment("app", "two", None, 0, subtopology="0", task_type="standby"),
        ],
        "committed_offsets": [
            offset("app", "lines", 0, 7),
            offset("app", "lines", 2, 9),
            offset("app", "b", 1, 5),
            offset("app", "gone", 0, 1),
        ],
        **tables,
    }
    night(tmp_path / "w", "prod", rows)
    return str(tmp_path / "w")


def test_partitions_of_a_streams_group_are_those_of_the_members_with_their_tasks(tmp_path):
    topologies = [topology(1, 0, **{"0": ["old"]}), topology(2, 1, **{"0": ["lines"], "1": ["a-repartition"], "2": ["b", "c"]})]
    place = streams(tmp_path, group_records=topologies)
    rows = list(csv.reader(described(place, "--group", "app", "--output", "csv").stdout.splitlines()))
    assert [[*row[1:3], row[4], *row[7:]] for row in rows[1:]] == [
        ["a-repartition", "0", "", "one", "/10.0.0.1", "client-one"],
        ["lines", "0", "7", "one", "/10.0.0.1", "client-one"],
        ["lines", "1", "", "one", "/10.0.0.1", "client-one"],
        ["b", "1", "5", "two", "/10.0.0.1", "client-two"],
        ["lines", "2", "9", "two", "/10.0.0.1", "client-two"],
        ["gone", "0", "1", "", "", ""],
    ]


def test_a_streams_group_is_shown_as_kafkas_own_tool_shows_it(tmp_path):
    # The titles and the order of kafka-streams-groups 4.3.1.
    place = streams(tmp_path, group_records=[topology(1, 1, **{"0": ["lines"], "1": ["a-repartition"], "2": ["b"]})])

    def shown(*options):
        return [line.split() for line in described(place, "--group", "app", *options).stdout.splitlines()[1:]]

    assert shown()[:2] == [["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"], ["app", "a-repartition", "0", "-"]]
    assert shown("--verbose")[0] == [*["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG"]]
    assert shown("--members") == [
        ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"],
        ["app", "one", "-", "client-one", "ACTIVE:0:[0,1];1:[0];2:[0];"],
        ["app", "two", "-", "client-two", "ACTIVE:0:[2];2:[1];STANDBY:0:[0];"],
    ]
    assert shown("--members", "--verbose")[1][3:6] == ["one", "streams", "3"]
    assert " ".join(shown("--state", "--verbose")[0]) == "GROUP COORDINATOR (ID) STATE GROUP-EPOCH TARGET-ASSIGNMENT-EPOCH #MEMBERS"


def test_a_streams_group_whose_topology_is_in_no_table_says_so(tmp_path):
    result = described(streams(tmp_path), "--group", "app", "--output", "csv")
    assert {row[7] for row in list(csv.reader(result.stdout.splitlines()))[1:]} == {""}
    assert result.stderr.startswith("The members that read the partitions of 'app' are not known: ")


def test_members_count_their_partitions(place):
    lines = described(place, "--group", "plain", "--members").stdout.split("\n")
    form = "{:<15} {:<15} {:<15} {:<15} {:<15} "
    assert lines == [
        "",
        form.format("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"),
        form.format("plain", "app-1-aa", "/10.0.0.1", "app-1", 1),
        form.format("plain", "app-2-bb", "/10.0.0.2", "app-2", 3),
        "",
    ]


def test_verbose_members_show_epochs_assignments_and_who_is_upgraded(place):
    lines = described(place, "--group", "new", "--members", "--verbose").stdout.splitlines()
    assert lines[1].split() == [
        *("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"),
        *("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED"),
    ]
    assert lines[2].split() == ["new", "m-new", "inst-1", "/10.0.0.1", "app", "0", "5", "-", "4", "MkTRaXlSRfWvFLT1M3hZWA:3", "true"]
    assert lines[3].split() == ["new", "m-old", "/10.0.0.1", "app", "2", "4", "orders:0,1", "4", "orders:0", "false"]


def test_classic_members_have_no_epochs_and_static_ones_no_column_where_there_are_none(place):
    lines = described(place, "--group", "plain", "--members", "--verbose").stdout.splitlines()
    assert "GROUP-INSTANCE-ID" not in lines[1] and "UPGRADED" not in lines[1]
    assert lines[3].split() == ["plain", "app-2-bb", "/10.0.0.2", "app-2", "3", "-", "orders:1,2,10", "-", "-"]


def test_a_group_without_members_shows_the_titles_as_kafka_does(place):
    assert described(place, "--group", "idle", "--members").stdout.split() == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]


def test_active_tasks_and_connectors_count_standby_tasks_do_not(place):
    (_, row) = csv.reader(described(place, "--group", "app", "--members", "--output", "csv").stdout.splitlines())
    assert row[5:8] == ["1", "3", "0:0"]
    (worker,) = described(place, "--group", "workers", "--members", "--verbose").stdout.splitlines()[2:]
    assert worker.split()[4:7] == ["1", "-", "idle-sink;sink:0"]


def test_state_has_no_coordinator_and_verbose_adds_epochs(place):
    lines = described(place, "--group", "new", "--state").stdout.split("\n")
    assert lines == [
        "",
        f"{'GROUP':<15} {'COORDINATOR (ID)':<25} {'ASSIGNMENT-STRATEGY':<20} {'STATE':<20} #MEMBERS",
        f"{'new':<15} {'-':<25} {'uniform':<20} {'Reconciling':<20} 2",
        "",
    ]
    verbose = described(place, "--group", "new", "--group", "plain", "--state", "--verbose").stdout.splitlines()
    assert verbose[1].split()[-3:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert verbose[2].split()[-3:] == ["5", "4", "2"]
    assert verbose[5].split() == ["plain", "-", "range", "Stable", "-", "-", "2"]


def test_all_groups_come_in_order(place):
    lines = described(place, "--all-groups", "--state", "--quiet").stdout.splitlines()
    assert [line.split()[0] for line in lines[2::3]] == ["app", "idle", "new", "only-offsets", "plain", "queue", "workers"]


def test_json_has_every_column_and_null_for_what_is_not_there(place):
    result = described(place, "--group", "plain", "--output", "json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert rows[1] == {
        "group": "plain",
        "topic": "orders",
        "partition": 2,
        "leader_epoch": 4,
        "current_offset": 12,
        "log_end_offset": None,
        "lag": None,
        "consumer_id": "app-2-bb",
        "host": "/10.0.0.2",
        "client_id": "app-2",
    }
    assert json.loads(described(place, "--group", "idle", "--state", "--output", "json").stdout)["group_epoch"] is None


def test_csv_is_for_programs_too(place):
    lines = described(place, "--group", "new", "--members", "--output", "csv").stdout.splitlines()
    assert lines[0].startswith("group,consumer_id,group_instance_id,host,client_id,partitions,current_epoch,current_assignment")
    assert lines[2] == 'new,m-old,,/10.0.0.1,app,2,4,"orders:0,1",4,orders:0,false'


@pytest.mark.parametrize(
    "text",
    [
        '{"orders": {"0": 15, "2": 12}, "gone": {"0": 100}}',
        "orders:0:15\norders:2:12\n\ngone:0:100\norders:1:\n",
        "orders,0,15\norders, 2, 12\ngone,0,100\n",
    ],
)
def test_end_offsets_give_lag(place, tmp_path, text):
    file = tmp_path / "ends"
    file.write_text(text)
    lines = described(place, "--group", "plain", "--end-offsets", str(file)).stdout.splitlines()
    assert [line.split()[1:6] for line in lines[2:]] == [
        ["orders", "1", "-", "-", "-"],
        ["orders", "2", "12", "12", "0"],
        ["orders", "10", "-", "-", "-"],
        ["orders", "0", "10", "15", "5"],
        ["gone", "0", "99", "100", "1"],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "topic,partition,offset\norders,0,15\n",
        "Topic, Partition, End offset\norders,0,15\n",
        "# taken at noon\n\n  # by kafka-get-offsets\norders:0:15\n# the end\n",
        '"topic","partition","offset"\n"orders","0","15"\n',
        "\ufefftopic,partition,offset\r\norders,0,15\r\n",
    ],
)
def test_end_offsets_may_have_a_heading_comments_and_quotes(place, tmp_path, text):
    file = tmp_path / "ends"
    file.write_text(text, encoding="utf-8")
    lines = described(place, "--group", "only-offsets", "--group", "plain", "--end-offsets", str(file)).stdout.splitlines()
    assert ["plain", "orders", "0", "10", "15", "5"] in [line.split()[:6] for line in lines]


def test_lines_of_end_offsets_that_are_not_understood_are_counted_in_one_line(place, tmp_path):
    (tmp_path / "ends").write_text("orders,0,15\ntopic,partition,offset\n")
    result = described(place, "--group", "plain", "--end-offsets", str(tmp_path / "ends"))
    (sentence,) = [line for line in result.stderr.splitlines() if "ends:" in line]
    assert "ends: 1 of 2 lines is not used. The first one, line 2: 'topic,partition,offset' is not" in sentence
    assert ["orders", "0", "10", "15", "5"] in [line.split()[1:6] for line in result.stdout.splitlines()]


@pytest.mark.parametrize("end", [-1, -2, -1001])
def test_a_negative_end_offset_is_none(place, tmp_path, end):
    (tmp_path / "ends").write_text(f"orders:0:{end}\norders:2:12\n")
    result = described(place, "--group", "plain", "--end-offsets", str(tmp_path / "ends"))
    assert ["orders", "0", "10", "-", "-"] in [line.split()[1:6] for line in result.stdout.splitlines()]
    assert "older than the commits" not in result.stderr


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_a_lag_below_zero_is_shown_as_kafka_does_with_a_note(place, tmp_path, output):
    (tmp_path / "ends").write_text("orders:0:15\norders:2:3\n")
    options = ["--group", "plain", "--end-offsets", str(tmp_path / "ends"), "--output", output]
    result = described(place, *options)
    older = "orders-2 of group 'plain' ends at 3 and 12 is committed"
    why = "The topic was created again or truncated, or the end offset is older than the commit."
    note = f"LAG is negative for 1 partition: {older}. {why}\n"
    assert result.stderr == note
    assert described(place, *options, "--quiet").stderr == ""
    if output == "json":
        assert {row["lag"] for row in map(json.loads, result.stdout.splitlines())} == {None, -9, 5}


@pytest.mark.parametrize(("committed_before_ms", "lag"), [(4_000, 0), (6_000, -3), (3_600_000, -3)])
def test_a_checkpoint_explains_only_commits_of_its_last_five_seconds(tmp_path, committed_before_ms, lag):
    ends = {"topic": "t", "partition": 0, "start_offset": 0, "end_offset": 7, "sampled_at_ms": AS_OF_MS, "written_at_ms": AS_OF_MS}
    tables = {
        "groups": [group("wq")],
        "committed_offsets": [offset("wq", "t", 0, 10, commit_timestamp_ms=AS_OF_MS - committed_before_ms)],
        "log_ends": [{**ends, "run_id": "r", "source": "checkpoint"}],
    }
    night(tmp_path, "prod", tables)
    result = described(str(tmp_path), "--group", "wq", "--output", "json")
    (row,) = map(json.loads, result.stdout.splitlines())
    assert (row["current_offset"], row["log_end_offset"], row["lag"]) == (10, 7, lag)
    assert ("LAG is negative for 1 partition: t-0 of group 'wq'" in result.stderr) == (lag < 0)


def test_no_lag_from_an_offset_of_minus_one(place, tmp_path):
    file = tmp_path / "ends"
    file.write_text("orders:0:15")
    assert described(place, "--group", "only-offsets", "--end-offsets", str(file)).stdout.splitlines()[2].split()[3:6] == ["-1", "15", "-"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("orders zero 3\n", "line 1: 'orders zero 3' is not topic:partition:offset or topic,partition,offset."),
        ('{"orders": ', "line 1: not JSON"),
        ('{"orders": [1, 2]}', 'expected {"topic": {"partition": offset}}'),
        ('{"orders": {"0": "many"}}', 'expected {"topic": {"partition": offset}}'),
    ],
)
def test_end_offsets_that_cannot_be_read_are_a_usage_error(place, tmp_path, text, sentence):
    file = tmp_path / "ends"
    file.write_text(text)
    result = groupcoord("describe", "--group", "plain", "--end-offsets", str(file), "--warehouse", place)
    assert result.exit_code == 2
    assert sentence in result.stderr and str(file) in result.stderr


def test_an_unknown_group_is_an_error_in_one_sentence(place):
    result = groupcoord("describe", "--group", "plain", "--group", "nobody", "--warehouse", place)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: Group 'nobody' does not exist in cluster 'prod'")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--members", "--state"], "--members and --state are different views: ask for one at a time."),
        (["--offsets", "--members", "--state"], "--offsets and --members and --state are different views"),
        (["--group", "plain"], "--group and --all-groups exclude each other: leave one of them out."),
    ],
)
def test_contradicting_options_are_refused_by_name(place, options, sentence):
    result = groupcoord("describe", "--all-groups", *options, "--warehouse", place)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr


@pytest.mark.parametrize("options", [[], ["--group", "plain", "--all-groups"], ["--all-groups", "--members", "--end-offsets", __file__]])
def test_options_that_make_no_sense_together_are_a_usage_error(place, options):
    assert groupcoord("describe", *options, "--warehouse", place).exit_code == 2


def test_an_earlier_night_is_described_with_at(place):
    lines = described(place, "--all-groups", "--state", "--at", "2026-01-01T00:00:00Z").stdout.splitlines()
    assert [line.split()[0] for line in lines[2::3]] == ["early"]
