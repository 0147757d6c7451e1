"""The Spark session of a run, its settings, its directory on disk, what its failures mean in our words, and functions for notebooks.

``from groupcoord_spark.spark import decode, replay, expire, rebalances`` gives the functions of ``groupcoord_spark.dataframes``. They are
loaded when they are first asked for, because the stages of a night, on which they stand, need this room.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupcoord_spark.dataframes import Expirations, State, decode, decode_error, expire, of_groups, rebalances, register, replay

__all__ = ["Expirations", "State", "decode", "decode_error", "expire", "of_groups", "rebalances", "register", "replay"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("groupcoord_spark.dataframes"), name)
