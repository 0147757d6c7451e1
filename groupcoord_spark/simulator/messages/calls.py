"""A request together with its answer, which may come at once, later or never."""

from groupcoord_spark.simulator.messages.answers import Answer
from groupcoord_spark.simulator.messages.requests import Request


class Call:
    """A request with its number, and its answer with the time of both.

    answer and answered_at_ms: None while the request waits; some requests are never answered.
    """

    __slots__ = ("answer", "answered_at_ms", "number", "request", "sent_at_ms")

    def __init__(self, number: int, request: Request, sent_at_ms: int) -> None:
        self.number = number
        self.request = request
        self.sent_at_ms = sent_at_ms
        self.answer: Answer | None = None
        self.answered_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"Call({self.number}, {self.request!r} at {self.sent_at_ms} -> {self.answer!r} at {self.answered_at_ms})"
