"""The golden copies of sick topics, and their oracles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"
SICK = GOLDEN / "sick"
CORPORA = sorted(path.parent.parent.relative_to(SICK).as_posix() for path in SICK.rglob("oracle/diagnosis.json"))


def oracle(corpus: str, name: str) -> Any:
    return json.loads((SICK / corpus / "oracle" / f"{name}.json").read_text())


def logs(corpus: str) -> str:
    return str(SICK / corpus / "logs")
