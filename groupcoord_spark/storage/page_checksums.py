"""Checksums of the pages of Parquet files, which pyarrow writes and verifies from release 15 on."""

import inspect
from collections.abc import Mapping
from typing import Final

import pyarrow.parquet as pq

_IS_KNOWN: Final = "page_checksum_verification" in inspect.signature(pq.ParquetFile).parameters

VERIFIED: Final[Mapping[str, bool]] = {"page_checksum_verification": True} if _IS_KNOWN else {}
"""Arguments of a reader of Parquet."""

WRITTEN: Final[Mapping[str, bool]] = {"write_page_checksum": True} if _IS_KNOWN else {}
"""Arguments of a writer of Parquet."""
