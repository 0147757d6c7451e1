"""Lets two and three runs commit to one warehouse at once, of one cluster and of several, in threads and in processes, and counts.

Runs of a cluster race each other, with pauses of random length between their commits, next to a look-back or upkeep; the first race of
a warehouse also makes its tables. Afterwards every table must have the rows that the finished nights leave one after the other, and nothing
of the others. ``python -m tests.tools.faults.two_runs --times 50``
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.compute as pc
from deltalake import DeltaTable

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.storage.warehouse_location import locate
from groupcoord_spark.warehouse import TABLES, begin_run, commit_run, open_warehouse
from groupcoord_spark.warehouse import write as write_module
from groupcoord_spark.warehouse.maintenance import maintain
from groupcoord_spark.warehouse.open_table import open_table
from groupcoord_spark.warehouse.tables import NIGHTLY, POINT_IN_TIME, RUNS, WriteMode
from tests.warehouse.nights import commit, group, offset, run_fields, written

LOOK_BACK_OF, UPKEEP_OF = "look-back of ", "upkeep of "
SCENES = (
    ("prod", "prod"),
    ("prod", "prod", "prod"),
    ("prod", "other"),
    ("prod", "prod", "other"),
    ("prod", "look-back of prod"),
    ("prod", "upkeep of prod"),
    ("prod", "look-back of prod", "upkeep of prod"),
    ("prod", "upkeep of prod", "upkeep of other"),
)
"""The jobs that run at once: a nightly, a point-in-time run or upkeep."""

LONGEST_PAUSE = 0.06
RACES_OF_A_WAREHOUSE = 5
"""The next race makes the tables of a new warehouse."""

NEXT_MONTH_MS = int((time.time() + 40 * 86_400) * 1000)
EXPECTED_OF_RUNS = ("Another run of cluster",)
EXPECTED_OF_UPKEEP = (
    *("Another run of cluster", "holds no run of cluster", "holds no night of cluster", "is not a warehouse"),
    "Run `groupcoord maintain` again",
)


@contextmanager
def pauses(seed: int) -> Iterator[None]:
    """Yield every commit begins after a pause of random length."""
    whole, chosen = write_module._commit_table, random.Random(seed)

    def commit_table(*given: Any) -> DeltaTable:
        time.sleep(chosen.choice((0, 0, LONGEST_PAUSE)) * chosen.random())
        return whole(*given)

    with patch.object(write_module, "_commit_table", commit_table):
        yield


def rows_of_run(number: int) -> dict[str, list[dict[str, Any]]]:
    """Check that all rows of a run have its number."""
    return {"committed_offsets": [offset("g", "t", 0, number)], "groups": [group(f"g{number}")], "offset_commits": [commit(number)]}


def one_run(warehouse: str, actor: str, number: int, delay: float) -> str:
    """``finished``, or the sentence with which the run, the look-back or the upkeep ended."""
    time.sleep(delay)
    try:
        if actor.startswith(UPKEEP_OF):
            maintain(warehouse, actor.removeprefix(UPKEEP_OF), keep_nights=3, now_ms=NEXT_MONTH_MS)
            return "finished"
        rows = rows_of_run(number)
        fields = run_fields(records_read=number, records_decoded=number)
        if actor.startswith(LOOK_BACK_OF):
            fields["kind"] = POINT_IN_TIME
            del rows["offset_commits"]
        start = begin_run(warehouse, actor.removeprefix(LOOK_BACK_OF))
        commit_run(start, fields, written(start, rows))
    except WarehouseError as e:
        return str(e)
    return "finished"


def one_run_in_a_process(warehouse: str, actor: str, number: int, delay: float) -> str:
    """Return the same as ``one_run``, with pauses."""
    with pauses(number):
        return one_run(warehouse, actor, number, delay)


def race(warehouse: Path, actors: Sequence[str], kind: str, chosen: random.Random) -> list[str]:
    """Return the outcome of each run; they begin within a fifth of a second. kind: threads or processes."""
    numbers = [chosen.randrange(1, 1 << 30) for _ in actors]
    delays = [chosen.random() * 0.2 for _ in actors]
    given = ([str(warehouse)] * len(actors), actors, numbers, delays)
    if kind == "processes":
        with ProcessPoolExecutor(len(actors), multiprocessing.get_context("spawn")) as pool:
            return list(pool.map(one_run_in_a_process, *given))
    with pauses(numbers[0]), ThreadPoolExecutor(len(actors)) as pool:
        return list(pool.map(one_run, *given))


def faults_of(warehouse: Path, actors: Sequence[str], endings: Sequence[str], finished_before: int) -> list[str]:
    """Return the faults after the runs of a race."""
    opened = open_warehouse(str(warehouse))
    expected_words = {True: EXPECTED_OF_UPKEEP, False: EXPECTED_OF_RUNS}
    faults = [
        f"{actor} ended with: {ending}"
        for actor, ending in zip(actors, endings, strict=True)
        if ending != "finished" and not any(words in ending for words in expected_words[actor.startswith(UPKEEP_OF)])
    ]
    of_runs = [ending for actor, ending in zip(actors, endings, strict=True) if not actor.startswith(UPKEEP_OF)]
    if opened.runs().num_rows - finished_before != of_runs.count("finished"):
        faults.append(f"{opened.runs().num_rows} rows in runs")
    # The newest versions are the ones of the newest run, while nobody has begun to repair.
    newest = {name: DeltaTable(str(warehouse / name)).version() for name in TABLES if name != RUNS.name}
    expected: dict[str, dict[str, list[str]]] = {}
    places: set[tuple[str, int, str]] = set()
    for cluster in opened.clusters_with_nightly_runs():
        # A run's number is in its row of runs too: as the number of records.
        runs = opened.runs(cluster)
        expected[cluster] = undisturbed_rows(runs.filter(pc.equal(runs["kind"], NIGHTLY))["records_read"].to_pylist())
        places.update((*place, cluster) for place in (*opened.run(cluster).table_versions.items(), *newest.items()))
    for name, version, cluster in sorted(places):  # a version is opened once
        columns = [column.name for column in TABLES[name].columns if column.name != "cluster"]
        rows = sorted(map(str, open_table(locate(str(warehouse)), TABLES[name], version).rows(cluster, columns).to_pylist()))
        if rows != expected[cluster].get(name, []):
            faults.append(f"{name} of {cluster} has {rows} at version {version}, expected {expected[cluster].get(name, [])}")
    return faults


def undisturbed_rows(numbers: Sequence[int]) -> dict[str, list[str]]:
    """Table -> its rows after nights with these numbers, one after the other; tables without rows are left out."""
    rows: dict[str, list[str]] = {}
    for number in numbers:
        for name, of_run in rows_of_run(number).items():
            made = TABLES[name].from_milliseconds(TABLES[name].from_rows(of_run))
            texts = [str({key: value for key, value in row.items() if key != "cluster"}) for row in made.to_pylist()]
            rows[name] = [*rows.get(name, []), *texts] if TABLES[name].write is WriteMode.APPENDED else texts
    return {name: sorted(of_table) for name, of_table in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="races of each kind and scene")
    parser.add_argument("--kinds", nargs="+", choices=("threads", "processes"), default=("threads", "processes"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    failed = races = 0
    for kind in options.kinds:
        for actors in SCENES:
            counts: Counter[str] = Counter()
            with tempfile.TemporaryDirectory(prefix="two-runs-") as directory:
                warehouse = Path(directory) / "warehouse"
                for number in range(options.times):
                    if number % RACES_OF_A_WAREHOUSE == 0:
                        shutil.rmtree(warehouse, ignore_errors=True)
                    before = open_warehouse(str(warehouse)).runs().num_rows if warehouse.exists() else 0
                    endings = race(warehouse, actors, kind, chosen)
                    faults = faults_of(warehouse, actors, endings, before)
                    counts.update("finished" if ending == "finished" else "refused" for ending in endings)
                    races += 1
                    failed += bool(faults)
                    for fault in faults:
                        print(f"  {fault}", flush=True)
            print(f"{kind:9} {', '.join(actors):42} {options.times} races: {dict(counts)}", flush=True)
    print(f"{failed} of {races} races failed")


if __name__ == "__main__":
    main()
