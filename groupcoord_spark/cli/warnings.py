"""``groupcoord warnings``: doubts and quarantined records of a run, by code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli.names import refuse_unknown_group
from groupcoord_spark.cli.options import Common, ShownRun, command, common_options, shown_run_options
from groupcoord_spark.errors import UsageError
from groupcoord_spark.wording import command_line, counted

if TYPE_CHECKING:
    import pyarrow as pa

    from groupcoord_spark.warehouse import Condition, Run, Warehouse

PLACE: Final = ("offsets_partition", "record_offset", "source", "position")
BY_CODE: Final = ("code", "table", "count", "records", "meaning", *PLACE, "group", "detail")
ROWS: Final = ("code", "table", *PLACE, "group", "detail", "records", "size")

OF_WARNINGS: Final = (*PLACE, "group_id", "code", "detail")
OF_QUARANTINE: Final = (*PLACE, "reason", "detail", "records", "size")


@command(epilog="Example: groupcoord warnings --output json")
@click.option("--code", help="Only this code, each row of it.")
@click.option("--group", "group_id", metavar="GROUP", help="Only doubts that name this group. Quarantined records belong to no group.")
@shown_run_options
@common_options
def warnings(common: Common, code: str | None, group_id: str | None, shown_run: ShownRun) -> None:
    """Show doubts about accepted records, and records that could not be read.

    One row for each code: how many rows it has, what it means, and one place as an example. With --code each row of that code.
    """
    warehouse, run = common.run(shown_run)
    if code is not None:
        _refuse_unknown(code, warehouse, run)
    parts = [_doubts(warehouse, run, code, group_id)]
    if group_id is not None and not parts[0].num_rows:
        refuse_unknown_group(group_id, warehouse, run)
    if group_id is None:
        parts.append(_quarantined(warehouse, run, code))
    rows, names = (_rows_of(parts), ROWS) if code is not None else (_by_code(parts), BY_CODE)
    values = ([row[name] for name in names] for row in rows)
    if code is not None and (rows or common.output != "table"):
        cells = ((_where(row), row["group"], row["detail"]) for row in rows)
        common.show(names, values, titles=["WHERE", "GROUP", "DETAIL"], cells=cells, least_widths=[15, 15, None])
    elif rows or common.output != "table":
        examples = ((row["code"], row["count"], _where(row), row["meaning"]) for row in rows)
        common.show(names, values, titles=["CODE", "COUNT", "FOR EXAMPLE AT", "MEANING"], cells=examples, least_widths=[10, 7, 15, None])
    quarantined = "" if group_id is not None else f", {counted(parts[1].num_rows, 'row')} of quarantined_records"
    common.say(f"Run {run.run_id}: {counted(parts[0].num_rows, 'doubt')}{quarantined}.")


def _doubts(warehouse: Warehouse, run: Run, code: str | None, group_id: str | None) -> pa.Table:
    import pyarrow as pa

    where: list[Condition] = [("run_id", "=", run.run_id)]
    where += [("code", "=", code)] if code is not None else []
    rows = warehouse.read("warnings", columns=OF_WARNINGS, where=where, run=run)
    if group_id is None:
        return rows
    # A warning about a whole partition has no group, and its detail names some.
    of_row = zip(rows["group_id"].to_pylist(), rows["detail"].to_pylist(), strict=True)
    names_it = [group == group_id or (group is None and repr(group_id) in (detail or "")) for group, detail in of_row]
    return rows.filter(pa.array(names_it, pa.bool_()))


def _quarantined(warehouse: Warehouse, run: Run, code: str | None) -> pa.Table:
    where: list[Condition] = [("run_id", "=", run.run_id)]
    where += [("reason", "=", code)] if code is not None else []
    rows = warehouse.read("quarantined_records", columns=OF_QUARANTINE, where=where, run=run)
    return rows.rename_columns([*PLACE, "code", *OF_QUARANTINE[len(PLACE) + 1 :]])


def _by_code(parts: Sequence[pa.Table]) -> list[dict[str, Any]]:
    """Return one row for each code, the most frequent first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from groupcoord_spark.answers.quarantine_reasons import quarantine_reasons
    from groupcoord_spark.warehouse.warning_codes import WARNING_CODES

    meanings = {**quarantine_reasons(), **WARNING_CODES}
    rows = []
    for table, part in zip(("warnings", "quarantined_records"), parts, strict=False):
        records = pc.fill_null(part["records"], 0) if "records" in part.column_names else pa.nulls(part.num_rows, pa.int64())
        numbered = pa.table({"code": part["code"], "row": pa.array(range(part.num_rows)), "records": records})
        groups = numbered.group_by("code").aggregate([("row", "count"), ("row", "min"), ("records", "sum")]).to_pylist()
        for of_code in sorted(groups, key=lambda of_code: (-of_code["row_count"], of_code["code"])):
            example = part.slice(of_code["row_min"], 1).to_pylist()[0]
            rows.append(
                {
                    "code": of_code["code"],
                    "table": table,
                    "count": of_code["row_count"],
                    "records": of_code["records_sum"],
                    "meaning": meanings.get(of_code["code"]),
                    **{name: example[name] for name in PLACE},
                    "group": example.get("group_id"),
                    "detail": example["detail"],
                }
            )
    return rows


def _rows_of(parts: Sequence[pa.Table]) -> list[dict[str, Any]]:
    return [
        {"records": None, "size": None, **row, "table": table, "group": row.get("group_id")}
        for table, part in zip(("warnings", "quarantined_records"), parts, strict=False)
        for row in part.to_pylist()
    ]


def _where(row: dict[str, Any]) -> str | None:
    """``__consumer_offsets-3 at offset 70``, or the file and the byte where no offset is known."""
    if row["offsets_partition"] is not None and row["record_offset"] is not None:
        return f"__consumer_offsets-{row['offsets_partition']} at offset {row['record_offset']}"
    if row["source"] is not None:
        return row["source"] if row["position"] is None else f"{row['source']} at byte {row['position']}"
    return None if row["offsets_partition"] is None else f"__consumer_offsets-{row['offsets_partition']}"


def _refuse_unknown(code: str, warehouse: Warehouse, run: Run) -> None:
    from groupcoord_spark.warehouse.tables import TABLES

    codes = {*TABLES["warnings"].by_name["code"].words, *TABLES["quarantined_records"].by_name["reason"].words}
    if code not in codes:
        listed = command_line("warnings", "--run", run.run_id, warehouse=warehouse.location.uri, cluster=run.cluster)
        raise UsageError(f"--code {code!r} is not a code that a run writes. `{listed}` lists those of the run.")
