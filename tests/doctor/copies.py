"""The golden copies of sick topics, and their oracles."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"
SICK = GOLDEN / "sick"
CORPORA = sorted(path.parent.parent.relative_to(SICK).as_posix() for path in SICK.rglob("oracle/diagnosis.json.gz"))


def oracle(corpus: str, name: str) -> Any:
    return json.loads(gzip.decompress((SICK / corpus / "oracle" / f"{name}.json.gz").read_bytes()))


def logs(corpus: str) -> str:
    return str(SICK / corpus / "logs")
