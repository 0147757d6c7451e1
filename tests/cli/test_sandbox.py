"""Statements of strangers: one SELECT over the tables and views, and nothing else."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest

from groupcoord_spark.cli.sql import print_rows
from groupcoord_spark.errors import UsageError
from groupcoord_spark.warehouse import sandbox
from groupcoord_spark.warehouse.read import open_warehouse
from groupcoord_spark.warehouse.sql import SnapshotInDuckDB
from tests.cli.warehouse import groupcoord

CANARY = "canary,of,a,file"

ATTACKS = [
    # Files, by every function and word that names one; .tmp is DuckDB's directory for temporary files.
    *(
        f"FROM {function}('{path}')"
        for function in ("read_csv", "read_text", "read_blob", "sniff_csv", "glob")
        for path in (".tmp/a.csv", "a.csv")
    ),
    *(
        "FROM read_json('.tmp/a.csv')",
        "FROM read_json_auto('a.csv')",
        "FROM read_parquet('.tmp/a.parquet')",
        "FROM parquet_scan('a.parquet')",
    ),
    *("FROM parquet_metadata('.tmp/a.parquet')", "FROM parquet_kv_metadata('a.parquet')", "FROM read_duckdb('.tmp/a.db')"),
    *("SELECT * FROM '.tmp/a.csv'", "FROM 'a.csv'", 'SELECT * FROM ".tmp/a.csv"', "DESCRIBE '.tmp/a.csv'", "SUMMARIZE 'a.csv'"),
    "SELECT (SELECT content FROM read_text('.tmp/a.csv'))",
    "SELECT 1 WHERE EXISTS (FROM read_text('.tmp/a.csv'))",
    "WITH a AS (FROM read_text('.tmp/a.csv')) FROM a",
    "FROM groups, LATERAL (SELECT content FROM read_text('.tmp/a.csv'))",
    "SELECT 1 UNION ALL SELECT length(content) FROM read_text('.tmp/a.csv')",
    "PIVOT read_csv('.tmp/a.csv') ON of IN ('of')",
    "SELECT list_transform([1], x -> (SELECT content FROM read_text('.tmp/a.csv')))",
    "FROM system.main.read_text('.tmp/a.csv')",
    # Texts that are run as statements.
    "FROM query('FROM read_text(''.tmp/a.csv'')')",
    "FROM query_table('.tmp/a.csv')",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''.tmp/a.csv'')'))",
    "PRAGMA json_execute_serialized_sql('{}')",
    # Writing.
    "COPY groups TO '.tmp/new.csv'",
    "COPY (SELECT 1) TO 'new.csv'",
    "WITH a AS (COPY groups TO '.tmp/new.csv') FROM a",
    "WITH a AS (CREATE TABLE mine AS SELECT 1) FROM a",
    "WITH a AS (INSERT INTO groups SELECT * FROM groups RETURNING *) FROM a",
    "WITH a AS (DELETE FROM groups RETURNING *) FROM a",
    "WITH a AS (UPDATE groups SET state = 'Dead' RETURNING *) FROM a",
    *("EXPLAIN SELECT 1", "EXPLAIN ANALYZE SELECT 1", "EXPLAIN ANALYZE COPY (SELECT 1) TO '.tmp/new.csv'"),
    *(
        "EXPORT DATABASE '.tmp/new'",
        "IMPORT DATABASE '.tmp'",
        "ATTACH '.tmp/new.db'",
        "ATTACH ':memory:' AS other",
        "DETACH memory",
        "USE memory",
    ),
    *("CREATE TABLE mine AS SELECT 1", "CREATE VIEW mine AS SELECT 1", "CREATE MACRO mine() AS 1", "CREATE SECRET s (TYPE http)"),
    *("CREATE TYPE mine AS ENUM ('a')", "CREATE SEQUENCE mine", "CREATE SCHEMA mine", "INSERT INTO groups SELECT * FROM groups"),
    *("UPDATE groups SET state = 'Dead'", "DELETE FROM groups", "DROP VIEW groups", "ALTER TABLE groups RENAME TO g", "TRUNCATE groups"),
    *("COMMENT ON VIEW groups IS 'x'", "VACUUM", "ANALYZE", "CHECKPOINT", "FORCE CHECKPOINT", "BEGIN", "COMMIT", "ROLLBACK"),
    # Log files and profiles that a table function of a SELECT writes.
    "FROM enable_logging(storage = 'file', storage_path = '.tmp/log')",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = 'log')",
    "FROM enable_profiling(save_location = '.tmp/profile')",
    "CALL enable_logging(storage = 'file', storage_path = '.tmp/log')",
    *("FROM checkpoint()", "FROM force_checkpoint()", "FROM truncate_duckdb_logs()", "SELECT write_log('x')", "FROM duckdb_logs"),
    # Settings, extensions, secrets, the environment and the process.
    *(
        "SET enable_external_access = true",
        "SET temp_directory = '.tmp'",
        "SET lock_configuration = false",
        "RESET memory_limit",
        "SET VARIABLE x = 1",
    ),
    *("PRAGMA database_list", "PRAGMA enable_profiling", "PRAGMA profiling_output = '.tmp/profile'", "CALL pragma_version()"),
    *("INSTALL httpfs", "LOAD httpfs", "FORCE INSTALL httpfs", "UPDATE EXTENSIONS", "LOAD '.tmp/a.duckdb_extension'"),
    *(
        "FROM duckdb_settings()",
        "FROM duckdb_settings",
        "SELECT current_setting('home_directory')",
        "SELECT getenv('PATH')",
        "SHOW VARIABLES",
    ),
    *(
        "FROM duckdb_secrets()",
        "FROM which_secret('s3://b', 's3')",
        "FROM duckdb_extensions()",
        "FROM duckdb_temporary_files()",
        "SHOW DATABASES",
    ),
    *("FROM pandas_scan(1)", "FROM arrow_scan(1, 1, 1)", "FROM python_map_function(1)", "FROM statements", "SELECT nextval('a')"),
    "FROM register_external_resource_type('a', 'b', 'c', 'd', 'e', 'f', 'g')",
    "FROM create_external_resource('a', MAP {'b': 'c'}, 'd')",
    *("PREPARE p AS SELECT 1", "EXECUTE p", "DEALLOCATE p"),
    # More than one statement, and none.
    *("SELECT 1; COPY groups TO '.tmp/new.csv'", "SELECT 1; SELECT 2", "SELECT 1;; SET threads = 1", "PIVOT groups ON state"),
]

ALLOWED = {
    "SELECT COUNT(*) AS n FROM groups": {"n": 7},
    "FROM groups SELECT COUNT(*) AS n -- a remark; COPY": {"n": 7},
    "WITH a AS (FROM groups) SELECT COUNT(*) AS n FROM a": {"n": 7},
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT MAX(n) AS n FROM r": {"n": 3},
    "SELECT COUNT(*) AS n FROM main.groups JOIN committed_offsets USING (group_id)": {"n": 6},
    "SELECT COUNT(*) AS n FROM groups g, unnest(subscribed_topics)": {"n": 0},
    "SELECT SUM(range) AS n FROM range(5)": {"n": 10},
    "VALUES (1)": {"col0": 1},
    "SELECT COUNT(*) AS n FROM (DESCRIBE groups) WHERE column_name = 'group_id'": {"n": 1},
    "SELECT COUNT(*) AS n FROM (SHOW TABLES) WHERE name = 'lag'": {"n": 1},
    "SELECT COUNT(*) AS n FROM information_schema.columns WHERE table_name = 'groups' AND column_name = 'state'": {"n": 1},
    "SELECT n FROM (SELECT COUNT(*) AS n FROM groups UNION ALL SELECT 0) ORDER BY n DESC LIMIT 1": {"n": 7},
    "PIVOT (SELECT group_type, 1 AS n FROM groups) ON group_type IN ('share') USING SUM(n)": {"share": 1},
}


@pytest.fixture
def canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Provide the files of a working directory that a stranger would like to read."""
    (tmp_path / ".tmp").mkdir()
    for name in ("a.csv", ".tmp/a.csv"):
        (tmp_path / name).write_text(f"{CANARY}\n")
    monkeypatch.chdir(tmp_path)
    return files_here()


def files_here() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


@pytest.fixture(scope="module")
def night(place: str) -> SnapshotInDuckDB:
    opened = SnapshotInDuckDB(open_warehouse(place))
    opened.restrict()
    return opened


def answer(night: SnapshotInDuckDB, text: str) -> list[str]:
    """Return the rows of all statements of a text, each as a text."""
    return [str(night.read(statement, lambda rows: rows.fetchall())) for statement in night.statements(text)]


@pytest.mark.parametrize("statement", ATTACKS)
def test_a_stranger_neither_reads_nor_writes_anything_but_the_tables(night: SnapshotInDuckDB, canaries: list[str], statement: str) -> None:
    with pytest.raises(UsageError) as refused:
        answer(night, statement)
    assert CANARY not in str(refused.value) and files_here() == canaries


OF_THE_SECOND_GATE = [
    attack for attack in ATTACKS if attack.startswith(("FROM ", "SELECT ", "WITH ", "DESCRIBE ")) and not re.search("enable_|;", attack)
]


def test_the_settings_alone_keep_files_closed(place: str, canaries: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # The parser's tree is the first gate, DuckDB's settings are the second. Only the first one refuses log files and profiles.
    monkeypatch.setattr(sandbox, "refuse_all_but_one_select", lambda connection, statement: None)
    night = SnapshotInDuckDB(open_warehouse(place))
    night.restrict()
    for statement in OF_THE_SECOND_GATE:
        with suppress(UsageError):
            assert CANARY not in str(answer(night, statement)), statement
        assert files_here() == canaries, statement


def test_nothing_is_said_to_nothing(night: SnapshotInDuckDB) -> None:
    assert answer(night, "/* a */") == []


@pytest.mark.parametrize(("statement", "row"), ALLOWED.items())
def test_a_select_over_the_tables_is_answered(
    night: SnapshotInDuckDB, capsys: pytest.CaptureFixture[str], statement: str, row: dict[str, int]
) -> None:
    print_rows(night, statement, "json", most_rows=1)
    assert json.loads(capsys.readouterr().out) == row


def test_a_statement_that_is_nested_without_end_is_refused(place: str) -> None:
    refused = groupcoord("sql", "--sandbox", "--warehouse", place, f"SELECT {'(' * 2000}1{')' * 2000}")
    assert refused.exit_code == 2 and "Traceback" not in refused.output


def test_a_statement_that_needs_more_memory_than_the_sandbox_has_ends_in_a_sentence(place: str) -> None:
    refused = groupcoord("sql", "--sandbox", "--warehouse", place, "SELECT length(repeat('x', 4000000000))")
    assert refused.exit_code == 2 and "memory" in refused.stderr.lower()
    assert groupcoord("sql", "--sandbox", "--warehouse", place, "SELECT 1").exit_code == 0


def test_long_values_are_cut_in_duckdb_and_say_how_long_they_are(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    night = SnapshotInDuckDB(open_warehouse(place))
    statement = "SELECT repeat('x', 3000000) AS text, [repeat('y', 50)] AS list, 'z'::BLOB AS bytes, 7 AS number FROM range(200)"
    print_rows(night, statement, "json", most_characters=20)
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    expected = {"text": f"{'x' * 20}… cut, characters: 3000000", "list": f'["{"y" * 18}… cut, characters: 54', "bytes": "7a", "number": 7}
    assert len(rows) == 200 and rows[0] == expected
    assert printed.err == "400 values cut to 20 characters: each ends with its length.\n"


def test_a_second_statement_is_refused_before_the_first_is_run(place: str) -> None:
    refused = groupcoord("sql", "--sandbox", "--warehouse", place, "SELECT 1; SELECT 2")
    assert (refused.exit_code, refused.stdout) == (2, "") and "the text has 2 statements" in refused.stderr
