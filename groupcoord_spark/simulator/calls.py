"""A request on its way: sent at one moment, answered then, later or never."""

from groupcoord_spark.simulator.answers import Answer
from groupcoord_spark.simulator.requests import Request


class Call:
    """A request with its number, the moment it was sent and, once there is one, its answer (None: still waiting, or never answered)."""

    __slots__ = ("answer", "answered_at_ms", "number", "request", "sent_at_ms")

    def __init__(self, number: int, request: Request, sent_at_ms: int) -> None:
        self.number = number
        self.request = request
        self.sent_at_ms = sent_at_ms
        self.answer: Answer | None = None
        self.answered_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"Call({self.number}, {self.request!r} at {self.sent_at_ms} -> {self.answer!r} at {self.answered_at_ms})"
