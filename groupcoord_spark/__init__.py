"""Kafka's ``__consumer_offsets``, decoded, replayed and expired exactly as the group coordinator would.

``import groupcoord_spark as gc`` gives ``gc.run_nightly`` and ``gc.open_warehouse``, and the functions on DataFrames ``gc.decode``,
``gc.read_segments``, ``gc.replay``, ``gc.expire``, ``gc.rebalances`` and ``gc.register``. Each is loaded when it is first asked for.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from groupcoord_spark import errors
from groupcoord_spark.version import __version__ as __version__

if TYPE_CHECKING:
    from groupcoord_spark.dataframes import (
        Expirations,
        State,
        decode,
        decode_error,
        expire,
        of_groups,
        read_segments,
        rebalances,
        register,
        replay,
    )
    from groupcoord_spark.pipeline.run import Summary
    from groupcoord_spark.pipeline.run_nightly import run_nightly
    from groupcoord_spark.warehouse.read import open_warehouse

__all__ = [
    "Expirations",
    "State",
    "Summary",
    "decode",
    "decode_error",
    "errors",
    "expire",
    "of_groups",
    "open_warehouse",
    "read_segments",
    "rebalances",
    "register",
    "replay",
    "run_nightly",
]

_ROOMS: Final = {
    "Summary": "groupcoord_spark.pipeline.run",
    "open_warehouse": "groupcoord_spark.warehouse.read",
    "run_nightly": "groupcoord_spark.pipeline.run_nightly",
}
_RENAMED: Final = {"run_night": "run_nightly"}
"""Names of earlier releases, which go with the next one."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(f"groupcoord_spark.{name} is now called {_RENAMED[name]}.", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_ROOMS.get(name, "groupcoord_spark.dataframes")), name)
    except ModuleNotFoundError as missing:
        if errors.SparkMissingError.explains(missing):
            raise errors.SparkMissingError(missing) from None
        raise


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
