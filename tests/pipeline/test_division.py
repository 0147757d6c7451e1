"""How many tasks a run is divided into: the rule as a function of bytes and cores."""

from __future__ import annotations

import pytest

from groupcoord_spark.log import Segment
from groupcoord_spark.pipeline.division import CLUSTER_TASK_BYTES, LEAST_TASK_BYTES, LOCAL_TASK_BYTES, STATE_WRITER_BYTES, Division
from groupcoord_spark.pipeline.plan.tasks import read_tasks

MB, GB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("total", "cores", "tasks"),
    [(0, 2, 2), (5 * MB, 2, 2), (5 * MB, 16, 16), (GB, 2, 2), (GB + 1, 2, 4), (100 * GB, 2, 200), (100 * GB, 16, 208)],
)
def test_one_machine_gets_a_multiple_of_its_cores(total: int, cores: int, tasks: int) -> None:
    division = Division(cores, is_cluster=False)
    assert division.reading_tasks(total) == tasks
    assert tasks % cores == 0
    assert total / tasks <= LOCAL_TASK_BYTES


@pytest.mark.parametrize("cores_at_the_beginning", [1, 2, 8])
def test_on_a_cluster_the_tasks_of_a_large_night_follow_the_bytes_alone(cores_at_the_beginning: int) -> None:
    division = Division(cores_at_the_beginning, is_cluster=True)
    for total in (GB, 10 * GB, 100 * GB):
        assert division.reading_tasks(total) == total // CLUSTER_TASK_BYTES


def test_on_a_cluster_a_small_night_uses_the_cores_that_are_there_but_no_tiny_tasks() -> None:
    division = Division(200, is_cluster=True)
    assert division.reading_tasks(5 * MB) == 1
    assert division.reading_tasks(10 * LEAST_TASK_BYTES) == 10
    assert division.reading_tasks(GB) == GB // LEAST_TASK_BYTES
    assert division.reading_tasks(100 * GB) == 100 * GB // CLUSTER_TASK_BYTES


def test_replays_and_writers_follow_the_offsets_partitions_and_the_bytes() -> None:
    local, cluster = Division(2, is_cluster=False), Division(2, is_cluster=True)
    assert (local.replays(50, 8), local.replays(5, 8)) == (8, 5)
    assert (cluster.replays(50, 8), cluster.replays(0, 8)) == (200, 1)
    large = 20 * STATE_WRITER_BYTES
    assert (local.writers(GB, 50), local.writers(large, 50)) == (1, 2)
    assert (cluster.writers(GB, 50), cluster.writers(large, 50), cluster.writers(large, 5)) == (1, 21, 5)


def test_pieces_of_rows_share_tasks_where_they_are_many_and_small() -> None:
    assert Division(2, is_cluster=False).row_tasks(10 * MB, 10_000) == 8
    assert Division(2, is_cluster=False).row_tasks(10 * MB, 3) == 3
    assert Division(2, is_cluster=True).row_tasks(10 * GB, 10_000) == 80
    assert Division(2, is_cluster=True).row_tasks(0, 0) == 1


def test_no_task_of_a_cluster_reads_much_more_than_its_share() -> None:
    segments = [
        Segment(f"/{partition}/{number}", 100 * MB, partition, number * 1000, (number + 1) * 1000)
        for partition in range(50)
        for number in range(4)
    ]
    tasks = read_tasks(segments, Division(2, is_cluster=True))
    assert len(tasks) == 157
    assert max(sum(segment.bytes for sequence in task for segment in sequence) for task in tasks) <= 2 * CLUSTER_TASK_BYTES
    assert sorted(segment.uri for task in tasks for sequence in task for segment in sequence) == sorted(segment.uri for segment in segments)


def test_the_master_tells_whether_more_cores_may_come() -> None:
    class Context:
        defaultParallelism = 2  # noqa: N815  # Spark's name

        def __init__(self, master: str) -> None:
            self.master = master

    class Session:
        def __init__(self, master: str) -> None:
            self.sparkContext = Context(master)

    local = ("local", "local[*]", "local[2]", "local[4,3]")
    others = ("spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]")
    assert not any(Division.of(Session(master)).is_cluster for master in local)  # type: ignore[arg-type]
    assert all(Division.of(Session(master)).is_cluster for master in others)  # type: ignore[arg-type]
