"""The compiled loops are used where they can be had and pay, and missed nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import groupcoord_spark
from groupcoord_spark.log import batches, scalar
from groupcoord_spark.pipeline import ownership
from groupcoord_spark.protocol import holdings, machine_code, programs, survey
from groupcoord_spark.protocol.group_values import surely_without_refusals
from groupcoord_spark.protocol.messages.classic import GROUP_METADATA_VALUE
from groupcoord_spark.protocol.shapes import shapes_of_values
from groupcoord_spark.protocol.slices import Slices
from tests.pipeline.logs import MALFORMED_SUBSCRIPTIONS, SUBSCRIPTION, classic_value_of, commit_value


@pytest.fixture
def nothing_loaded() -> Iterator[None]:
    machine_code.load.cache_clear()
    yield
    machine_code.load.cache_clear()


@pytest.mark.usefixtures("nothing_loaded")
def test_few_rows_load_nothing_but_use_what_is_loaded() -> None:
    assert not machine_code.is_at_hand(machine_code.ROWS_WORTH_LOADING - 1)
    assert machine_code.is_at_hand(machine_code.ROWS_WORTH_LOADING)
    assert machine_code.is_at_hand(1)


@pytest.mark.usefixtures("nothing_loaded")
def test_without_numba_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "find_spec", lambda name: None)
    assert not machine_code.is_at_hand(10**9)


def test_without_a_place_to_keep_them_there_are_none(tmp_path: Path) -> None:
    """As a package that Spark ships in an archive, for a user without a home."""
    package = Path(groupcoord_spark.__file__).parent
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", package.parent, package.name)
    no_directory = tmp_path / "file"
    no_directory.touch()
    environment = {**os.environ, "PYTHONPATH": archive, "HOME": str(no_directory), "XDG_CACHE_HOME": str(no_directory / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    asked = "from groupcoord_spark.protocol import machine_code; print(machine_code.__file__, machine_code.load())"
    run = subprocess.run([sys.executable, "-c", asked], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.startswith(archive) and run.stdout.endswith(" False\n"), run.stdout


def test_the_numbers_that_loops_repeat_are_those_of_their_definitions() -> None:
    from groupcoord_spark.protocol import loops

    repeated = {name: number for name, number in vars(loops).items() if isinstance(number, int | np.int64)}
    defined = {**vars(batches), **vars(scalar), **vars(ownership), **vars(holdings), **vars(programs)}
    defined |= {"NUMBERS_STEP" if step is programs.Do.NUMBERS else step.name: int(step) for step in programs.Do}
    defined |= {"LAST_OFFSET_KEY": max(survey.OFFSET_KEYS), "DEEPEST": loops.DEEPEST}
    defined |= {"NEWEST_GROUP_VALUE": GROUP_METADATA_VALUE.versions[1]}
    assert GROUP_METADATA_VALUE.flexible_from == loops.NEWEST_GROUP_VALUE
    assert repeated == {name: defined[name] for name in repeated}


@pytest.mark.parametrize("version", range(5))
def test_group_values_that_brokers_write_are_sure_to_be_taken(version: int) -> None:
    assert machine_code.load()
    members = [(f"consumer-{i}", f"instance-{i}" if i % 2 else None, SUBSCRIPTION) for i in range(300)]
    values = [classic_value_of(members[:count], version=version) for count in (0, 1, 2, 300)]
    assert surely_without_refusals(Slices.of(list(values)), checks_subscriptions=True).all()


def test_a_subscription_is_looked_at_only_where_the_loader_reads_subscriptions() -> None:
    assert machine_code.load()
    malformed = [("a", None, MALFORMED_SUBSCRIPTIONS[0])]
    values = Slices.of([classic_value_of(malformed, protocol_type=kind) for kind in ("consumer", "connect")])
    assert surely_without_refusals(values, checks_subscriptions=True).tolist() == [False, True]
    assert surely_without_refusals(values, checks_subscriptions=False).tolist() == [True, True]


def test_commits_that_differ_in_numbers_and_texts_alone_have_one_shape() -> None:
    assert machine_code.load()
    cut = Slices.of([commit_value(i, metadata=f"m{i:05}")[:-5] for i in range(1000)])
    assert len(shapes_of_values(1, cut).distinct()[1]) == 1
