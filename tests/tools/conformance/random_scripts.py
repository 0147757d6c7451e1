"""Random requests to a real broker and to the simulator: the first difference of each script, made small.

``python -m tests.tools.conformance.random_scripts --release 4.4.0 --protocol consumer --count 30 --seed 1`` starts a broker of that
release, plays the scripts against it and against the simulator, and compares the lines of ``transcripts``. Of a script that differs it
prints the shortest that it finds by leaving steps out, with the difference. A script that differs in one play and is equal in another
is counted as timing: the broker was late. The exit code is the number of scripts that differ.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tests.tools.conformance.transcripts import PLAYS, RealBroker, Simulated, Step, broker_with

TOPIC_SIZES = {"t": 4, "u": 3}
STEPS = 22
OFFSETS_STEPS = 0.12
"""The share of steps about offsets, in scripts of all protocols."""
MOST_SHORTENINGS = 40
"""How often a script that differs is played again to make it smaller."""
_LONG = {"rebalance_timeout_ms": 120_000}
_LONG_CLASSIC = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 120_000}


def _consumer_step(pick: random.Random, who: str) -> Step:
    fields: dict[str, Any] = dict(_LONG)
    match pick.randrange(16):
        case 0 | 1:
            fields["topics"] = pick.choice([("t",), ("u",), ("t", "u"), ("t", "missing"), ()])
        case 2:
            fields |= {"topics": pick.choice([(), ("u",)]), "topic_regex": pick.choice(["t.*", "u", "[tu]", "zz.*", ""])}
        case 3 | 4:
            fields["partitions"] = pick.choice([{}, None, {"t": (0, 1, 2, 3)}, {"t": (0, 1)}, {"u": (0,)}])
        case 5:
            fields["member_epoch"] = pick.choice([0, 0, -1, -1, 1, 99])
        case 6:
            fields["server_assignor"] = pick.choice(["range", "uniform"])
        case 7:
            fields["member_id"] = "ghost"
        case 8:
            return who, "list", {}
    return who, "new", fields


def _static_step(pick: random.Random, who: str) -> Step:
    """Return a consumer group's member whose instance id belongs to another one, too."""
    who, what, fields = _consumer_step(pick, who)
    if what == "new" and pick.random() < 0.7:
        fields["group_instance_id"] = "i1" if who in "AB" else f"i{who}"
        fields["member_epoch"] = pick.choice([0, -2, -1]) if pick.random() < 0.3 else fields.get("member_epoch")
        fields = {name: value for name, value in fields.items() if name != "member_epoch" or value is not None}
    return who, what, fields


def _classic_step(pick: random.Random, who: str) -> Step:
    match pick.randrange(12):
        case 0 | 1 | 2 | 3:
            fields: dict[str, Any] = dict(_LONG_CLASSIC)
            if pick.random() < 0.3:
                fields["topics"] = pick.choice(["t", "u", "t u"])
            if pick.random() < 0.2:
                fields["protocols"] = pick.choice(["range", "roundrobin", "range roundrobin", "sticky range"])
            if pick.random() < 0.15:
                fields["group_instance_id"] = pick.choice(["i1", "i2"])
            if pick.random() < 0.1:
                fields["member_id"] = pick.choice(["", "ghost"])
            if pick.random() < 0.3:
                fields["owned"] = True
            return who, "join", fields
        case 4 | 5:
            numbers = list(range(4))
            pick.shuffle(numbers)
            return who, "sync", {name: sorted(numbers[at::2]) for at, name in enumerate("AB")} if pick.random() < 0.8 else {}
        case 6 | 7:
            return who, "beat", {} if pick.random() < 0.8 else {"generation": 99}
        case 8:
            return who, "leave", {}
        case 9:
            return who, "commit", {"older": pick.choice([0, 0, 1, -1])}
        case _:
            return who, "list", {}


def _mixed_step(pick: random.Random, who: str) -> Step:
    """Members A and B mostly speak the classic protocol, C and D the new one."""
    speaks_classic = (who in "AB") == (pick.random() < 0.85)
    return _classic_step(pick, who) if speaks_classic else (_static_step if pick.random() < 0.3 else _consumer_step)(pick, who)


def _share_step(pick: random.Random, who: str) -> Step:
    match pick.randrange(10):
        case 0 | 1:
            return who, "share", {"topics": pick.choice([("t",), ("u",), ("t", "u"), ("missing",), ()])}
        case 2:
            return who, "share", {"member_epoch": pick.choice([0, -1, 1, 99])}
        case 3:
            return who, pick.choice(["list", "show"]), {}
        case 4:
            return who, "share", {"rack_id": "r"}
    return who, "share", {}


def _offsets_step(pick: random.Random, who: str) -> Step:
    """Return a request about offsets, which groups of all types answer, or the deletion of the group."""
    match pick.randrange(8):
        case 0 | 1:
            return who, "store", {"older": pick.choice([0, 0, 1, -1]), "version": pick.choice([8, 9])}
        case 2:
            return who, "store", {"topic": pick.choice(["t", "u", "missing"]), "member_id": pick.choice(["", "ghost"])}
        case 3:
            return who, "stage", {"older": pick.choice([0, 0, 1]), "member_id": pick.choice([None, None, ""])}
        case 4:
            return who, "fetch", {"older": pick.choice([0, 0, 1]), "member_id": pick.choice(["", None])}
        case 5 | 6:
            return who, "forget", {"topic": pick.choice(["t", "u"])}
    return who, "delete", {}


def _streams_step(pick: random.Random, who: str) -> Step:
    match pick.randrange(18):
        case 0:
            return who, "streams", {"member_epoch": pick.choice([0, -1, -1, 1, 99])}
        case 1 | 2:
            return who, "streams", {"owns": pick.choice(["none", "0_0", "0_0 0_1", "0_1 + 0_0", None])}
        case 3:
            return who, "configure", {"streams_num_standby_replicas": pick.choice([0, 1, 2])}
        case 4:
            return who, pick.choice(["list", "describe"]), {}
        case 5:
            return who, "streams", {"process": pick.choice(["process-A", "process-B"]), "member_epoch": 0}
        case 6:
            return who, "streams", {"rack_id": pick.choice(["r", "s"])}
        case 7:
            return who, "streams", {"group_instance_id": pick.choice(["i1", f"i{who}"]), "member_epoch": pick.choice([0, 0, -1, -2])}
        case 8:
            return who, "streams", {"task_offsets": {("0", number): pick.choice([0, 10, 1_000]) for number in range(pick.randrange(5))}}
        case 9:
            return who, "streams", {"client_tags": {"zone": pick.choice("ab")}, "user_endpoint": (who, pick.choice([1, 2]))}
    return who, "streams", {}


STEPS_OF: dict[str, Callable[[random.Random, str], Step]] = {
    "classic": _classic_step,
    "consumer": _consumer_step,
    "static": _static_step,
    "mixed": _mixed_step,
    "share": _share_step,
    "streams": _streams_step,
}


def random_script(protocol: str, seed: int, length: int = STEPS) -> list[Step]:
    """Return the script of a seed. A step that has an expression resolved is followed by a wait."""
    pick = random.Random(f"{protocol} {seed}")
    topology = pick.choice(["plain", "stateful", "two"])
    steps: list[Step] = []
    for _ in range(length):
        who = pick.choice("AABBC" if protocol != "mixed" else "AABBCCD")
        who, what, fields = (_offsets_step if pick.random() < OFFSETS_STEPS else STEPS_OF[protocol])(pick, who)
        if what == "streams" and (fields.get("member_epoch") == 0 or not any(one[0] == who and one[1] == what for one in steps)):
            fields = {**fields, "topology": topology, **_LONG, "member_epoch": fields.get("member_epoch", 0)}
            if fields["member_epoch"] != 0:
                del fields["topology"]
        steps.append((who, what, fields))
        if "topic_regex" in fields:
            steps.append(("-", "wait", {"ms": 300}))
        if fields.get("topology") == "stateful":
            steps.append(("-", "wait", {"ms": 1_500}))  # the broker makes the changelog topics
    return steps


class Judge:
    """Plays scripts on a broker and on the simulator of its release."""

    def __init__(self, broker: RealBroker, release: str) -> None:
        self._broker, self._release = broker, release
        self._numbers = itertools.count()

    def difference(self, name: str, steps: Sequence[Step]) -> str:
        """Return the difference of the lines as a unified diff; "" where there are none."""
        group = f"{name}-{next(self._numbers)}"
        lines = self._broker.play(group, list(steps))
        simulator = Simulated(dict(self._broker.topics), list(self._broker.member_ids), release=self._release)
        simulated = simulator.play(group, list(steps))
        return "\n".join(difflib.unified_diff(lines, simulated, "broker", "simulator", lineterm="", n=3))

    def lasting_difference(self, name: str, steps: Sequence[Step]) -> str:
        """Return the difference if two plays have one. A play without shows that the broker's timing made the difference."""
        found = ""
        for _ in range(PLAYS - 1):
            found = self.difference(name, steps)
            if not found:
                break
        return found

    def shortest(self, name: str, steps: Sequence[Step]) -> list[Step]:
        """Leave out steps as long as the script still differs."""
        short = list(steps)
        budget = MOST_SHORTENINGS
        size = max(len(short) // 2, 1)
        while budget and size:
            at = 0
            while at < len(short) and budget:
                candidate = short[:at] + short[at + size :]
                budget -= 1
                if candidate and self.lasting_difference(name, candidate):
                    short = candidate
                else:
                    at += size
            size //= 2
        return short


def main(arguments: list[str]) -> int:
    """Play random scripts. Returns the number of scripts that differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="4.4.0")
    parser.add_argument("--protocol", action="append", choices=STEPS_OF, help="may be repeated; default: all")
    parser.add_argument("--count", type=int, default=30, help="scripts of each protocol")
    parser.add_argument("--seed", type=int, default=1, help="of the first script")
    parser.add_argument("--length", type=int, default=STEPS, help="steps of a script")
    chosen = parser.parse_args(arguments)
    all_different = 0
    with broker_with(TOPIC_SIZES, chosen.release) as broker:
        judge = Judge(broker, chosen.release)
        for protocol in chosen.protocol or STEPS_OF:
            different, late = 0, 0
            for seed in range(chosen.seed, chosen.seed + chosen.count):
                name = f"{protocol}-{seed}"
                steps = random_script(protocol, seed, chosen.length)
                if not (first := judge.difference(name, steps)):
                    continue
                if not judge.lasting_difference(name, steps):
                    late += 1
                    print(f"{name}: timing: a later play is equal\n{first}", flush=True)
                    continue
                different += 1
                short = judge.shortest(name, steps)
                print(f"{name}: DIFFERENT\n{short!r}\n{judge.difference(name, short)}", flush=True)
            summary = f"{chosen.count} scripts of {chosen.length} steps on {chosen.release}"
            print(f"{protocol}: {summary}, {different} differ, {late} differed once by the broker's timing", flush=True)
            all_different += different
    return all_different


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
