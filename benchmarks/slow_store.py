"""An object store in memory that answers like S3 after a delay: listing, HEAD and GET with ranges, for readers of dumps.

moto takes some milliseconds of CPU for a request, more than what it would measure here, so ``planning.py`` measures with this.
"""

from __future__ import annotations

import asyncio
import os
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "dumps"
KEYS_A_PAGE = 1000


class SlowStore:
    """The objects of one bucket. requests: the requests answered, by kind; most_at_once: the most that waited at one time."""

    def __init__(self, objects: Mapping[str, bytes], delay_seconds: float) -> None:
        self.objects = objects
        self.keys = sorted(objects)
        self.delay_seconds = delay_seconds
        self.requests: Counter[str] = Counter()
        self.waiting = self.most_at_once = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                await reader.readexactly(int(headers.get("content-length", 0)))
                self.waiting += 1
                self.most_at_once = max(self.most_at_once, self.waiting)
                await asyncio.sleep(self.delay_seconds)
                self.waiting -= 1
                writer.write(self.answer(method, target, headers.get("range")))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed the connection
        finally:
            writer.close()

    def answer(self, method: str, target: str, wanted: str | None) -> bytes:
        """Return the bytes of the response."""
        url = urlsplit(target)
        key = unquote(url.path).strip("/").removeprefix(BUCKET).lstrip("/")
        if method == "GET" and not key:
            self.requests["LIST"] += 1
            listed = self.listing({name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()})
            return response("200 OK", listed, "Content-Type: application/xml")
        self.requests[method] += 1
        if method == "HEAD" and not key:
            return response("200 OK", b"")
        content = self.objects.get(key)
        if content is None or method not in ("GET", "HEAD"):
            missing = b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>" if method == "GET" else b""
            return response("404 Not Found", missing)
        marks = ['ETag: "0"', "Last-Modified: Sat, 21 Nov 2026 08:00:00 GMT", "Accept-Ranges: bytes"]
        if method == "HEAD":
            return response("200 OK", b"", *marks, length=len(content))
        if wanted is None:
            return response("200 OK", content, *marks)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(content)), len(content) - 1)
        return response("206 Partial Content", content[start : end + 1], *marks, f"Content-Range: bytes {start}-{end}/{len(content)}")

    def listing(self, query: Mapping[str, str]) -> bytes:
        """Return a page of ListObjectsV2."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        most = min(int(query.get("max-keys", KEYS_A_PAGE)), KEYS_A_PAGE)
        at = bisect_left(self.keys, query.get("continuation-token", prefix))
        parts: list[str] = []
        count = 0
        while at < len(self.keys) and self.keys[at].startswith(prefix) and count < most:
            key = self.keys[at]
            folder = key[: key.find(delimiter, len(prefix)) + 1] if delimiter and delimiter in key[len(prefix) :] else ""
            count += 1
            if folder:
                parts.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
                at = bisect_left(self.keys, folder + "\U0010ffff")
                continue
            modified = "<LastModified>2026-11-21T08:00:00.000Z</LastModified>"
            parts.append(f"<Contents><Key>{escape(key)}</Key>{modified}<Size>{len(self.objects[key])}</Size></Contents>")
            at += 1
        more = at < len(self.keys) and self.keys[at].startswith(prefix)
        token = f"<NextContinuationToken>{escape(self.keys[at])}</NextContinuationToken>" if more else ""
        head = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>{most}</MaxKeys>"
        listed = f"{head}<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(parts)}"
        return f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>{listed}</ListBucketResult>'.encode()


def response(status: str, content: bytes, *headers: str, length: int | None = None) -> bytes:
    """Return the bytes of a response of HTTP. length: where it is not that of the content, as in the answer to HEAD."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def _serve_until_closed(objects: Mapping[str, bytes], delay_seconds: float, questions: Connection) -> None:
    store = SlowStore(objects, delay_seconds)

    async def run() -> None:
        server = await asyncio.start_server(store.serve, "127.0.0.1", 0, backlog=1024)
        questions.send(server.sockets[0].getsockname()[1])
        await asyncio.to_thread(answer_questions)
        os._exit(0)  # the connections that clients keep open are not waited for

    def answer_questions() -> None:
        while questions.recv() == "requests":
            questions.send((dict(store.requests), store.most_at_once))
            store.requests.clear()
            store.most_at_once = 0

    asyncio.run(run())


class RunningStore:
    """A store in a process of its own."""

    def __init__(self, questions: Connection) -> None:
        self._questions = questions
        self._lock = threading.Lock()
        self.port: int = questions.recv()

    @property
    def environment(self) -> dict[str, str]:
        """The variables where pyarrow and delta-rs find the store."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def requests(self) -> tuple[dict[str, int], int]:
        """Return the requests since the last question, by kind, and the most that waited at one time."""
        with self._lock:
            self._questions.send("requests")
            answered: tuple[dict[str, int], int] = self._questions.recv()
            return answered


@contextmanager
def slow_store(objects: Mapping[str, bytes], delay_seconds: float) -> Iterator[RunningStore]:
    """Run a store with these objects, by key. Each request is answered after the delay, any number of them at a time."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_serve_until_closed, args=(objects, delay_seconds, theirs), daemon=True)
    process.start()
    try:
        yield RunningStore(ours)
    finally:
        ours.send("end")
        process.join(10)
        process.terminate()
