"""Connect workers: connectors and tasks out of the members' own bytes."""

from typing import Any

from tests.coordinator.records import GOLDEN, classic_group, member, recorded, replayed


def _connectors(name: bytes, *tasks: int) -> bytes:
    numbers = b"".join(task.to_bytes(4, "big", signed=True) for task in tasks)
    return b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + len(tasks).to_bytes(4, "big") + numbers


def _assignment(version: int, assigned: bytes, revoked: bytes = b"") -> bytes:
    head = version.to_bytes(2, "big") + b"\0\0" + b"\0\1w" + b"\0\1u" + bytes(8)
    return head + assigned + (revoked + bytes(4) if version else b"")


def _metadata(owned: bytes) -> bytes:
    return b"\0\1" + b"\0\1u" + bytes(8) + len(owned).to_bytes(4, "big") + owned


def _rows(worker: dict[str, Any], protocol: str) -> list[tuple[str, str | None, str | None, int | None]]:
    state = replayed([classic_group("connect", members=[worker], protocol=protocol)])
    assert state.groups()[0].subscribed_topics is None
    return [(row.kind, row.subtopology, row.task_type, row.partition) for row in state.assignments()]


def test_worker_runs_what_it_owned_without_what_is_revoked_and_with_what_is_new() -> None:
    owned = _assignment(1, _connectors(b"sink", -1, 0), _connectors(b"x"))
    news = _assignment(1, _connectors(b"new", 4), _connectors(b"sink", 0))
    assert _rows(member("w", _metadata(owned), assignment=news), "sessioned") == [
        ("current", "new", "task", 4),
        ("current", "sink", "connector", None),
        ("owned", "sink", "connector", None),
        ("owned", "sink", "task", 0),
        ("pending_revocation", "sink", "task", 0),
    ]


def test_eager_worker_runs_what_it_was_given() -> None:
    worker = member("w", b"\0\0\0\1u" + bytes(8), assignment=_assignment(0, _connectors(b"sink", -1, 2)))
    assert _rows(worker, "default") == [("current", "sink", "connector", None), ("current", "sink", "task", 2)]


def test_home_made_protocol_keeps_its_bytes() -> None:
    state = replayed([classic_group("mine", members=[member("w", b"?", assignment=b"!")], protocol="p")])
    assert (state.assignments(), state.members()[0].subscription, state.members()[0].assignment) == ([], b"?", b"!")


def test_real_workers_share_the_connectors_out() -> None:
    states = [replayed(records) for records in recorded(GOLDEN / "connect").values()]
    rows = [row for state in states for row in state.assignments() if row.task_type is not None]
    current = sorted((row.member_id[:8], row.subtopology, row.task_type, row.partition) for row in rows if row.kind == "current")
    assert current == [("worker-0", "sink-a", "connector", None), ("worker-0", "sink-a", "task", 0), ("worker-1", "sink-a", "task", 1)]
