"""Functions of columns that work in a session of Spark Connect as in any other."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from pyspark.sql import Column
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DataType, StructType
from pyspark.sql.utils import is_remote


def struct_of(**columns: str) -> StructType:
    """Return a struct with these columns, each with Spark's JSON name of its type, such as ``integer``.

    The same as DDL would take the JVM of a session, which neither a worker nor a notebook's first import has.
    """
    struct = StructType()
    for name, kind in columns.items():
        struct.add(name, kind)
    return struct


class ColumnFunction:
    """A pandas UDF that is made when it is used.

    pyspark makes a UDF for the kind of session that there is at that moment, and one for Spark's own sessions refuses the columns of
    Spark Connect. Notebooks import this package before they have a session.
    """

    def __init__(self, function: Callable[..., Any], returns: DataType) -> None:
        update_wrapper(self, function)
        self.name = function.__name__
        self._function = function
        self._returns = returns
        self._made: dict[bool, Any] = {}

    @property
    def udf(self) -> Any:
        """The UDF for the kind of session that there is now."""
        kind = is_remote()
        if kind not in self._made:
            self._made[kind] = pandas_udf(self._function, self._returns)  # type: ignore[call-overload]
        return self._made[kind]

    def __call__(self, *columns: Column | str) -> Column:
        column: Column = self.udf(*columns)
        return column


def column_function(returns: DataType) -> Callable[[Callable[..., Any]], ColumnFunction]:
    """Decorator of a function from pandas Series to a Series or, for a struct, to a DataFrame. returns: the type of its column."""
    return lambda function: ColumnFunction(function, returns)
