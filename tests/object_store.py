"""An S3 end point on the loopback (moto), in a process of its own, and what a test puts there."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DUMPS = "dumps"
WAREHOUSES = "warehouses"

_SERVER = """
from moto import backends, server
modules = frozenset(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: modules
server.main()
"""
"""moto looks into its directories for the names of all services in each request, a fifth of its CPU: here it looks once."""


@dataclass(frozen=True)
class ObjectStore:
    """The end point. Its buckets are DUMPS and WAREHOUSES."""

    url: str
    log: Path

    def requests(self, prefix: str) -> Counter[tuple[str, str]]:
        """(method, key) -> number of requests so far for keys of DUMPS with this prefix. A listing has the key ''."""
        answered = re.findall(rf'(GET|HEAD|PUT) /{DUMPS}(?:/({prefix}[^ ?]*)|\?)', self.log.read_text())
        return Counter((method, key) for method, key in answered)

    @property
    def variables(self) -> dict[str, str]:
        """The variables as a user sets them for a store that is not Amazon's."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: str = "s3") -> Any:
        import boto3

        return boto3.client(
            service, endpoint_url=self.url, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1"
        )

    def upload(self, directory: Path, prefix: str) -> str:
        """Copy a directory to DUMPS. Its URI."""
        client = self.client()
        for file in sorted(directory.rglob("*")):
            if file.is_file():
                client.put_object(Bucket=DUMPS, Key=f"{prefix}/{file.relative_to(directory).as_posix()}", Body=file.read_bytes())
        return f"s3://{DUMPS}/{prefix}"

    def keys(self, bucket: str, prefix: str) -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    @contextmanager
    def checks_keys(self) -> Iterator[None]:
        """Yield the store refuses requests whose access key it does not know; it knows none."""
        self._ask("0")
        try:
            yield
        finally:
            self._ask("Infinity")

    def _ask(self, requests_without_check: str) -> None:
        address, text = f"{self.url}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        request = urllib.request.Request(address, data=requests_without_check.encode(), headers=text, method="POST")
        with urllib.request.urlopen(request) as answered:
            json.load(answered)


@contextmanager
def object_store(log: Path) -> Iterator[ObjectStore]:
    """Yield a running store. log: the file for what it prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with log.open("wb") as output:
        command = [sys.executable, "-c", _SERVER, "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(log.read_text()) from None
                time.sleep(0.1)
        store = ObjectStore(f"http://127.0.0.1:{port}", log)
        for bucket in (DUMPS, WAREHOUSES):
            store.client().create_bucket(Bucket=bucket)
        yield store
    finally:
        process.terminate()
        process.wait(10)
