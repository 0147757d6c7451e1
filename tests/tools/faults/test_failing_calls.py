"""A small part of failing_calls.py: some calls of a run fail, each in a run of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process


def test_a_run_of_which_one_call_fails_is_one_sentence_and_the_next_one_is_whole() -> None:
    options = ("--jobs", "second run", "--cases", "3", "--few-tables")
    tool = subprocess.run([sys.executable, "-m", "tests.tools.faults.failing_calls", *options], capture_output=True, text=True, check=False)
    if tool.stdout.startswith("Skipped"):
        pytest.skip(tool.stdout)
    assert tool.returncode == 0, tool.stdout + tool.stderr
    assert sum(int(line.split()[4]) for line in tool.stdout.splitlines() if line.startswith("second run")) == 3
