"""Kafka's ``__consumer_offsets``, decoded, replayed and expired exactly as the group coordinator would.

``import groupcoord_spark as gc`` gives ``gc.run_night`` and ``gc.open_warehouse``, and the functions on DataFrames ``gc.decode``,
``gc.replay``, ``gc.expire``, ``gc.rebalances`` and ``gc.register``. Each is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from groupcoord_spark.dataframes import decode, expire, rebalances, register, replay
    from groupcoord_spark.pipeline.run import Summary
    from groupcoord_spark.pipeline.run_night import run_night
    from groupcoord_spark.warehouse.read import open_warehouse

__version__ = "1.0.0"

__all__ = ["Summary", "decode", "expire", "open_warehouse", "rebalances", "register", "replay", "run_night"]

_ROOMS: Final = {
    "Summary": "groupcoord_spark.pipeline.run",
    "open_warehouse": "groupcoord_spark.warehouse.read",
    "run_night": "groupcoord_spark.pipeline.run_night",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ROOMS.get(name, "groupcoord_spark.dataframes")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
