"""Single requests to a real broker, in any version, without the logic of a client.

The forms of requests and answers are the schemas inside the broker's own ``kafka-clients`` jar. They become tables of the package's
protocol code, which writes the requests and reads the answers. Names of fields are in snake case; booleans are 0 and 1.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from groupcoord_spark.protocol.definition import FieldReader, write_message
from groupcoord_spark.protocol.fields import (
    ZERO_UUID,
    Array,
    Blob,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Integer,
    Message,
    Struct,
    Text,
    Type,
    Uint16,
    Uuid,
)

_NUMBERS: Mapping[str, Type] = {"bool": Int8, "int8": Int8, "int16": Int16, "uint16": Uint16, "int32": Int32, "int64": Int64, "uuid": Uuid}
_FLAGS = {"true": 1, "false": 0}
_ANSWER_SECONDS = 30.0
_NEWER_NAMES = {"generation_id": "generation_id_or_member_epoch"}
"""Fields that a later release calls otherwise: in TxnOffsetCommit since 4.4."""
_PLAIN_HEADER_KEY = 18
"""ApiVersions: the header of its answer never has tags."""


class Pending:
    """A request that has been sent. Each has a connection of its own, so that one that waits does not keep others from being answered."""

    def __init__(self, connection: socket.socket, message: Message, version: int, has_tags: bool) -> None:
        self._connection, self._message, self._version, self._has_tags = connection, message, version, has_tags
        self._answer: dict[str, Any] | None = None

    def answer(self, within: float = _ANSWER_SECONDS) -> dict[str, Any] | None:
        """Return the answer; None where it has none within this number of seconds."""
        if self._answer is None:
            self._connection.settimeout(within)
            try:
                (size,) = struct.unpack(">i", self._take(4))
                data = self._take(size)
            except TimeoutError:
                return None
            self._connection.close()
            at = 5 if self._has_tags else 4
            self._answer, _ = FieldReader(data, self._message, self._version).read_struct(self._message.fields, at)
        return self._answer

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._connection.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data


class RawClient:
    """Sends requests to one broker. client_id: of every request that names no other."""

    def __init__(self, servers: str, jars: Path) -> None:
        host, _, port = servers.rpartition(":")
        self._address = (host, int(port))
        self._jar = str(next(jars.glob("*kafka-clients-*.jar")))

    def start(self, api: str, version: int, fields: Mapping[str, Any], client_id: str = "raw") -> Pending:
        """Send a request, and do not wait for its answer. Fields that are left out have their defaults."""
        key, request = schema(self._jar, f"{api}Request")
        names = {field.name for field in request.fields}
        fields = {name if name in names else _NEWER_NAMES.get(name, name): value for name, value in fields.items()}
        _, answer = schema(self._jar, f"{api}Response")
        flexible = request.is_flexible(version)
        head = struct.pack(">hhih", key, version, 1, len(client_id)) + client_id.encode() + (b"\0" if flexible else b"")
        body = write_message(request, version, fields)
        connection = socket.create_connection(self._address, timeout=_ANSWER_SECONDS)
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        return Pending(connection, answer, version, flexible and key != _PLAIN_HEADER_KEY)

    def ask(self, api: str, version: int, client_id: str = "raw", **fields: Any) -> dict[str, Any]:
        """Return the answer to a request. AssertionError without an answer."""
        answer = self.start(api, version, fields, client_id).answer()
        assert answer is not None, f"the broker did not answer {api}"
        return answer


@cache
def schema(jar: str, name: str) -> tuple[int, Message]:
    """Return the number of a request, and the table of the request or of its answer."""
    with zipfile.ZipFile(jar) as opened:
        text = opened.read(f"common/message/{name}.json").decode()
    read = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    structs = {one["name"]: one["fields"] for one in read.get("commonStructs", ())}
    first, last = _versions(read["validVersions"])
    flexible = read["flexibleVersions"]
    fields = _fields(read["fields"], structs)
    flexible_from = None if flexible == "none" else _versions(flexible)[0]
    return read["apiKey"], Message(name, versions=(first, last), flexible_from=flexible_from, fields=fields, since={})


def _versions(text: str) -> tuple[int, int]:
    first, dash, last = text.rstrip("+").partition("-")
    return int(first), int(last) if dash else 32767 if text.endswith("+") else int(first)


def _fields(declared: list[dict[str, Any]], structs: Mapping[str, Any]) -> tuple[Field, ...]:
    return tuple(_field(one, structs) for one in declared if one["versions"] != "none")


def _field(declared: dict[str, Any], structs: Mapping[str, Any]) -> Field:
    nullable = declared.get("nullableVersions", "none") != "none"
    kind = _type(declared["type"], declared, structs, nullable)
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", declared["name"]).lower()
    return Field(name, kind, "", declared["versions"], _default(declared, kind, nullable), declared.get("tag"))


def _type(name: str, declared: dict[str, Any], structs: Mapping[str, Any], nullable: bool) -> Type:
    if name.startswith("[]"):
        return Array(_type(name[2:], declared, structs, False), nullable)
    if name == "string":
        return Text(nullable)
    if name in ("bytes", "records"):
        return Blob(nullable)
    if name in _NUMBERS:
        return _NUMBERS[name]
    return Struct(_fields(declared.get("fields") or structs[name], structs), nullable)


def _default(declared: dict[str, Any], kind: Type, nullable: bool) -> Any:
    given = declared.get("default")
    if given in ("null", None) and nullable and (given == "null" or isinstance(kind, Text | Blob | Array | Struct)):
        return None
    match kind:
        case Integer():
            return _FLAGS[str(given).lower()] if str(given).lower() in _FLAGS else int(str(given or 0), 0)
        case Text():
            return given or ""
        case Blob():
            return b""
        case Array():
            return []
        case Struct():
            return kind.default()
        case _:
            return ZERO_UUID
