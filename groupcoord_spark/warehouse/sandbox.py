"""Limits for SQL statements of strangers: one SELECT over the tables and views of a run, without files and within bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from groupcoord_spark.errors import UsageError
from groupcoord_spark.warehouse.tables import TABLES
from groupcoord_spark.warehouse.view_texts import VIEWS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SETTINGS: Final = (
    # Before external access is closed: DuckDB keeps the temporary directory of that moment readable and writable.
    *("temp_directory = ''", "max_temp_directory_size = '0GB'", "python_enable_replacements = false"),
    *("autoinstall_known_extensions = false", "autoload_known_extensions = false", "allow_community_extensions = false"),
    *("memory_limit = '2GB'", "enable_external_access = false", "disabled_filesystems = 'LocalFileSystem'", "lock_configuration = true"),
)

_MOST_MEMORY: Final = 3 << 30
"""Bytes that a statement may add to the process. DuckDB's own limit does not count a single long value."""

_NODES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
"""Query nodes of DuckDB's parser that only read. A WITH clause may also contain INSERT or COPY."""

_TABLE_FUNCTIONS: Final = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "summary", "unnest"})
"""Table functions that compute rows from their arguments alone. Others read files, write log files or run a text as a statement."""

_WITH_EFFECTS: Final = frozenset({"current_setting", "getenv", "nextval", "setval", "sleep_ms", "write_log"})
"""Scalar functions that read the environment or change something."""

_CATALOGS: Final = frozenset({"information_schema"})
"""Schemas whose tables only describe the tables and views."""

_SHOWN: Final = frozenset({"tables", "__show_tables_expanded"})


def restrict(connection: DuckDBPyConnection) -> None:
    """Close the file systems, extensions and settings of a connection for good."""
    for setting in _SETTINGS:
        connection.execute(f"SET {setting}")


def refuse_all_but_one_select(connection: DuckDBPyConnection, statement: str) -> None:
    """Raise UsageError for a statement that is not a SELECT over the tables and views of a run.

    The rule is a list of allowed nodes in the tree of DuckDB's own parser. Additions in a later DuckDB are rejected until listed.
    """
    ((text,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement]).fetchall()
    try:
        tree = json.loads(text)
    except RecursionError:
        raise UsageError("The statement is nested too deeply for --sandbox.") from None
    if tree["error"] or len(tree["statements"]) != 1:
        raise UsageError("With --sandbox one SELECT is run (also FROM, WITH, VALUES, DESCRIBE and SHOW TABLES), and nothing else.")
    nodes = list(_nodes(tree["statements"][0]))
    own_names = {entry["key"].lower() for node in nodes for entry in (node.get("cte_map") or {}).get("map", ())}
    own_names |= {str(node["cte_name"]).lower() for node in nodes if "cte_name" in node} | {*TABLES, *VIEWS}
    for node in nodes:
        if refused := _refused(node, own_names):
            raise UsageError(f"With --sandbox a SELECT reads the tables and views of the run, and nothing else: {refused} is refused.")


def _refused(node: dict[str, Any], own_names: set[str]) -> str:
    """Return what of a node is not allowed in a sandbox; empty where nothing is."""
    kind, name = str(node.get("type", "")), str(node.get("function_name", "")).lower()
    if kind.endswith("_NODE") and kind not in _NODES:
        return kind.removesuffix("_NODE").removesuffix("_QUERY").replace("_", " ")
    if kind == "TABLE_FUNCTION":
        function = str((node.get("function") or {}).get("function_name", "")).lower()
        return "" if function in _TABLE_FUNCTIONS else f"the table function {function!r}"
    if name in _WITH_EFFECTS:
        return f"the function {name!r}"
    if kind == "BASE_TABLE":
        table, schema = str(node.get("table_name", "")).lower(), str(node.get("schema_name") or "").lower()
        return "" if table in own_names or schema in _CATALOGS else f"{table!r}"
    if kind == "SHOW_REF" and not node.get("query"):
        shown = str(node.get("table_name", "")).strip('"').lower()
        return "" if shown in _SHOWN else f"SHOW {shown.upper() or 'TABLES FROM'}"
    return ""


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the parser's tree."""
    left = [tree]
    while left:
        match left.pop():
            case dict() as node:
                yield node
                left.extend(node.values())
            case list() as nodes:
                left.extend(nodes)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Run statements in a process that may grow by 3 GB, where the system has such a limit.

    Raises:
        UsageError: A statement needs more.
    """
    try:
        import resource

        size_in_pages = int(Path("/proc/self/statm").read_text().split()[5])
        before = resource.getrlimit(resource.RLIMIT_DATA)
        most = size_in_pages * resource.getpagesize() + _MOST_MEMORY
        if before[1] == resource.RLIM_INFINITY or most < before[1]:
            resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    except (ImportError, OSError):  # not Linux: DuckDB's own limit holds
        yield
        return
    try:
        yield
    except MemoryError:
        raise UsageError("The statement needs more than 3 GB of memory. Select fewer or shorter values.") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
