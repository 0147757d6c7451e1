"""Lets two and three runs commit to one warehouse at once, of one cluster and of several, in threads and in processes, and counts.

Runs of a cluster race each other, with pauses of random length between their commits; afterwards every table must have the rows of the runs
that finished, as if these had run one after the other, and nothing of the others. ``python -m tests.faults.two_runs --times 50``
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deltalake import DeltaTable

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.warehouse import TABLES, begin_run, commit_run, open_warehouse
from groupcoord_spark.warehouse import write as write_module
from groupcoord_spark.warehouse.location import locate
from groupcoord_spark.warehouse.read import rows_at
from tests.warehouse.nights import commit, group, offset, run_fields, written

SCENES = (("prod", "prod"), ("prod", "prod", "prod"), ("prod", "other"), ("prod", "prod", "other"))
LONGEST_PAUSE = 0.06


@contextmanager
def pauses(seed: int) -> Iterator[None]:
    """Every commit begins after a pause of random length."""
    whole, chosen = write_module._commit_table, random.Random(seed)

    def commit_table(*given: Any) -> DeltaTable:
        time.sleep(chosen.choice((0, 0, LONGEST_PAUSE)) * chosen.random())
        return whole(*given)

    with patch.object(write_module, "_commit_table", commit_table):
        yield


def one_run(warehouse: str, cluster: str, number: int, delay: float) -> str:
    """``finished``, or the sentence with which the run ended. All rows of the run have the number."""
    time.sleep(delay)
    try:
        start = begin_run(warehouse, cluster)
        rows = {"committed_offsets": [offset("g", "t", 0, number)], "groups": [group(f"g{number}")], "offset_commits": [commit(number)]}
        commit_run(start, run_fields(records_read=number, records_decoded=number), written(start, rows))
    except WarehouseError as e:
        return str(e)
    return "finished"


def one_run_in_a_process(warehouse: str, cluster: str, number: int, delay: float) -> str:
    """The same as ``one_run``, with pauses."""
    with pauses(number):
        return one_run(warehouse, cluster, number, delay)


def race(warehouse: Path, clusters: Sequence[str], kind: str, chosen: random.Random) -> list[str]:
    """How each of the runs ended; they begin within a fifth of a second. kind: threads or processes."""
    numbers = [chosen.randrange(1, 1 << 30) for _ in clusters]
    delays = [chosen.random() * 0.2 for _ in clusters]
    given = ([str(warehouse)] * len(clusters), clusters, numbers, delays)
    if kind == "processes":
        with ProcessPoolExecutor(len(clusters), multiprocessing.get_context("spawn")) as pool:
            return list(pool.map(one_run_in_a_process, *given))
    with pauses(numbers[0]), ThreadPoolExecutor(len(clusters)) as pool:
        return list(pool.map(one_run, *given))


def faults_of(warehouse: Path, endings: Sequence[str], finished_before: int) -> list[str]:
    """What is wrong after the runs of a race."""
    opened = open_warehouse(str(warehouse))
    faults = [f"ended with: {ending}" for ending in endings if ending != "finished" and "Another run of cluster" not in ending]
    if opened.runs().num_rows - finished_before != endings.count("finished"):
        faults.append(f"{opened.runs().num_rows} rows in runs")
    for cluster in opened.clusters():
        # A run's number is in its row of runs too: as so many records.
        numbers = opened.runs(cluster)["records_read"].to_pylist()
        expected = {
            "offset_commits": ("record_offset", sorted(numbers)),
            "committed_offsets": ("committed_offset", numbers[-1:]),
            "groups": ("group_id", [f"g{numbers[-1]}"]),
        }
        for name, (column, values) in expected.items():
            newest = DeltaTable(str(warehouse / name)).version()
            for version in (opened.run(cluster).table_versions[name], newest):
                rows = sorted(rows_at(locate(str(warehouse)), TABLES[name], version, cluster, [column])[column].to_pylist())
                if rows != values:
                    faults.append(f"{name} of {cluster} has {rows} at version {version}, expected {values}")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="races of each kind and scene")
    parser.add_argument("--kinds", nargs="+", choices=("threads", "processes"), default=("threads", "processes"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    failed = races = 0
    for kind in options.kinds:
        for clusters in SCENES:
            counts: Counter[str] = Counter()
            with tempfile.TemporaryDirectory(prefix="two-runs-") as directory:
                warehouse = Path(directory) / "warehouse"
                for _ in range(options.times):
                    before = open_warehouse(str(warehouse)).runs().num_rows if warehouse.exists() else 0
                    endings = race(warehouse, clusters, kind, chosen)
                    faults = faults_of(warehouse, endings, before)
                    counts.update("finished" if ending == "finished" else "refused" for ending in endings)
                    races += 1
                    failed += bool(faults)
                    for fault in faults:
                        print(f"  {fault}", flush=True)
            print(f"{kind:9} {', '.join(clusters):18} {options.times} races: {dict(counts)}", flush=True)
    print(f"{failed} of {races} races failed")


if __name__ == "__main__":
    main()
