"""The page as text: findings and figures as HTML, everything else as packed data that the page's own script shows."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import Final
from urllib.parse import quote

import pyarrow.compute as pc

from groupcoord_spark.answers.findings import LEVELS
from groupcoord_spark.answers.morning import News
from groupcoord_spark.answers.run_changes import REASONS
from groupcoord_spark.answers.timeline import duration
from groupcoord_spark.report.gather import CountedFinding, Report
from groupcoord_spark.report.packing import as_json, packed, packed_tables
from groupcoord_spark.report.tables import BY_NAME, TABLES
from groupcoord_spark.warehouse.tables import NIGHTLY
from groupcoord_spark.wording import command_line, counted, first_of

CHARTS: Final = ("calendar", "group_days", "ownership", "lag", "lag_history", "commit_hours", "group_templates")
"""The specifications in the folder charts."""


def page(report: Report) -> str:
    """Render the whole page as HTML in UTF-8. The same report always gives the same text."""
    lacks = {table.name: why for table in TABLES if (why := report.lacks(table.name)) is not None}
    facts = {
        "as_of": report.run.as_of_ms,
        "warehouse": report.warehouse,
        "cluster": report.run.cluster,
        "chosen_groups": list(report.chosen_groups),
        "gone": {group_id: REASONS[why] for group_id, why in report.morning.gone_groups.items()},
        "since": None if report.morning.since is None else report.morning.since.as_of_ms,
        "charts": {name: json.loads(_file("charts", f"{name}.json")) for name in CHARTS},
        **packed_tables(report.tables, lacks),
    }
    when = _moment(report.run.as_of_ms)
    return Template(_file("browser", "page.html")).substitute(
        title=as_html(f"{report.run.cluster}, {when}: consumer groups"),
        cluster=as_html(report.run.cluster),
        when=when,
        when_iso=datetime.fromtimestamp(report.run.as_of_ms / 1000, UTC).isoformat(timespec="seconds"),
        kind="Run" if report.run.kind == NIGHTLY else "Point-in-time run",
        remarks="".join(f'<li class="remark">{escape(remark)}</li>' for remark in _remarks(report)),
        news=_news(report),
        findings="".join(_findings(report)),
        nothing=_nothing(report.findings, lacks),
        figures="".join(_figures(report)),
        about=_about(report),
        style=_file("browser", "page.css"),
        script=_file("browser", "page.js"),
        data=packed(as_json(facts)),
        library=base64.b64encode((files(__package__) / "browser" / "vega.js.gz").read_bytes()).decode("ascii"),  # as ``packed`` has it
        licences=packed(_file("browser", "vega-licences.txt")),
    )


def index(entries: Sequence[tuple[str, Report]]) -> str:
    """Render the index of several clusters' pages, those with the worst news first. ``entries`` holds file names and reports."""
    order: dict[str, int] = {level: number for number, level in enumerate(LEVELS)}
    rows = []
    for name, report in entries:
        news = report.morning.news
        worst = f'<span class="{news[0].level}">{escape(news[0].sentence)}</span>' if news else "nothing new"
        cells = [
            f'<a href="{quote(name)}"><bdi>{as_html(report.run.cluster)}</bdi></a>',
            _moment(report.run.as_of_ms),
            f"{report.tables['groups'].num_rows:,}",
            _lag(report),
            f"{len(news):,}",
            worst,
        ]
        place = order[news[0].level] if news else len(order)
        rows.append((place, report.run.cluster, f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"))
    return Template(_file("browser", "index.html")).substitute(
        style=_file("browser", "page.css"), rows="".join(row for *_, row in sorted(rows)), clusters=counted(len(rows), "cluster")
    )


def as_html(text: str) -> str:
    """Escape a text for HTML. Invisible characters and those that change the text direction are escaped as in the commands."""
    return escape(text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


def _file(folder: str, name: str) -> str:
    return (files(__package__) / folder / name).read_text(encoding="utf-8")


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _remarks(report: Report) -> Iterator[str]:
    """Yield sentences about inputs that the run lacks."""
    if report.is_of_admin_api:
        yield (
            "This run is from the Admin API: the state and lag are what the brokers answered. When offsets were committed and when they"
            " expire, open transactions and all history are in the log alone and cannot be shown."
        )
        return
    if report.tables["completeness"].num_rows == 0:
        yield "The offsets topic was empty: there is nothing to show but the runs."
        return
    if not report.has_history:
        yield (
            "This warehouse has no history: the run was made with --no-history. The state and what expires are complete;"
            " rewinds, rebalances, commits per hour, who had which partition and the days of the groups cannot be shown."
        )
    elif report.history_is_behind:
        yield "The history ends before the log does, because a run was made with --no-history: counts of the history are lower bounds."
    if not report.has_log_ends:
        yield (
            "No lag: this run has no log ends, neither from replication-offset-checkpoint in the log directory nor from a sample"
            " (nightly --end-offsets or --with-end-offsets)."
        )
    if report.completeness is not None and report.completeness < 1:
        yield (
            f"The history has {_percent(report.completeness)} of all records ever written; compaction took the others before a run read"
            " them. Counts of the past are lower bounds, the present state is exact."
        )


def _findings(report: Report) -> Iterator[str]:
    """Yield the findings that have a number, level by level."""
    for level, meaning in LEVELS.items():
        findings = [finding for finding in report.findings if finding.kind.level == level and finding.number]
        if not findings:
            continue
        yield f'<h3 class="level {level}">{escape(meaning)}</h3><ul class="findings {level}">'
        for finding in findings:
            table = BY_NAME[finding.kind.table]
            is_least = table.needs == "history" and report.completeness is not None and report.completeness < 1
            number = _link(table.name, f"{'≥ ' if is_least else ''}{finding.number:,}", finding.kind.where, "number")
            because = f'<span class="because">{escape(finding.kind.because)}</span>' if finding.kind.because else ""
            groups = _groups(finding.groups, finding.group_count)
            yield f'<li>{number}<span class="sentence">{escape(finding.sentence)}{groups}{because}</span></li>'
        yield "</ul>"


def _groups(names: Sequence[str], number: int) -> str:
    """Return links to the pages of up to three groups, and the number of the remaining ones."""
    links = [f'<a href="#group/{quote(name, safe="")}"><bdi>{as_html(_short(name))}</bdi></a>' for name in names[:3]]
    return f'<span class="groups">{first_of(links, count=number)}</span>' if links else ""


def _short(name: str) -> str:
    return "(empty)" if name == "" else name if len(name) <= 60 else f"{name[:40]}…{name[-19:]}"


def _command(item: News, report: Report) -> str:
    return command_line(*item.command(report.run, report.morning.since), warehouse=report.warehouse, cluster=report.run.cluster)


def _news(report: Report) -> str:
    """Render the changes since the last run that differs, the worst first, with the commands that show more."""
    since, news = report.morning.since, report.morning.news
    begin = "In the first run" if since is None else f"Since the run of {_moment(since.as_of_ms)}"
    if not news:
        return f"<p>{begin}, nothing is new that someone must look at.</p>"
    items = "".join(
        f'<li class="{item.level}"><a class="number">{item.number:,}</a><span class="sentence">{escape(item.clause)}'
        f"{_groups(item.groups, item.group_count)}<code>{as_html(_command(item, report))}</code></span></li>"
        for item in news
    )
    return f'<p>{begin}, the worst first:</p><ul class="findings">{items}</ul>'


def _trend(values: Sequence[float | None]) -> str:
    """Render the values of the last runs as a sparkline; empty for fewer than two."""
    points = [(number, value) for number, value in enumerate(values) if value is not None]
    if len(points) < 2:
        return ""
    least, most = min(value for _, value in points), max(value for _, value in points)
    scale = 22 / (most - least) if most > least else 0
    line = " ".join(f"{100 * number / (len(values) - 1):.1f},{24 - (value - least) * scale:.1f}" for number, value in points)
    label = f"{counted(len(points), 'run')}: {', '.join(f'{value:,.0f}' for _, value in points)}"
    return (
        f'<svg class="trend" viewBox="-2 0 104 26" preserveAspectRatio="none" role="img" aria-label="{label}"><title>{label}</title>'
        f'<polyline points="{line}"/></svg>'
    )


def _nothing(findings: Sequence[CountedFinding], lacks: Mapping[str, str]) -> str:
    """Render the findings that the run does not have, and those that it cannot show."""
    clean = dict.fromkeys(finding.kind.clause(0) for finding in findings if not finding.number and finding.kind.table not in lacks)
    blind = dict.fromkeys(BY_NAME[finding.kind.table].title for finding in findings if finding.kind.table in lacks)
    lists = {"Looked for and not found": clean, "Could not be looked for": blind}
    return "".join(
        f"<details><summary>{heading}: {len(texts)}</summary><ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul></details>"
        for heading, texts in lists.items()
        if texts
    )


def _figures(report: Report) -> Iterator[str]:
    groups = report.tables["groups"]
    states = ", ".join(_link("groups", f"{count:,} {state}", (("state", "=", state),)) for state, count in report.states.items())
    trends = report.trends
    yield _figure("Groups", _link("groups", f"{groups.num_rows:,}"), states or "none", trends["groups"])
    yield _figure("Members", _link("groups", _sum(groups, "members"), (("members", ">=", 1),)), "of live groups")
    yield _figure(
        "Committed offsets", _link("groups", _sum(groups, "offsets"), (("offsets", ">=", 1),)), "in the present state", trends["offsets"]
    )
    yield _figure(
        "Expire within 7 days", _link("expiring", f"{(trends['expiring'] or [0])[-1] or 0:,}"), "committed offsets", trends["expiring"]
    )
    if report.has_log_ends:
        yield _figure("Lag", _link("lag_by_group", _lag(report)), "records, by the newest log ends", trends["lag"])
    yield _figure(
        "Bytes of the log",
        _link("completeness", f"{_sum(report.tables['completeness'], 'bytes')}"),
        "of the offsets topic, as read",
        trends["bytes"],
    )
    records, quarantined = (report.run.row[name][0].as_py() for name in ("records_read", "records_quarantined"))
    below = f"{quarantined:,} of them unreadable" if records else "nothing was new since the last run"
    yield _figure("Records that this run read", _link("nights", f"{records:,}"), below)
    complete, below = "no history", ""
    if report.completeness is not None:
        complete, below = _percent(report.completeness), "of all records ever written"
    yield _figure("Completeness of the history", _link("completeness", complete), below)


def _figure(name: str, number: str, below: str, runs: Sequence[float | None] = ()) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{number}<small>{below}</small>{_trend(runs)}</dd></div>"


def _sum(rows: object, column: str) -> str:
    return f"{pc.sum(rows[column]).as_py() or 0:,}"  # type: ignore[index]


def _lag(report: Report) -> str:
    """Render the total lag of all groups, with ``≥`` if log ends are missing for some partitions; ``-`` without lag."""
    if not pc.count(report.tables["lag_by_group"]["lag"]).as_py():
        return "-"
    is_partial = pc.any(pc.equal(report.tables["offsets"]["remark"], "no_sample")).as_py()
    return f"{'≥ ' if is_partial else ''}{_sum(report.tables['lag_by_group'], 'lag')}"


def _link(table: str, text: str, where: Sequence[tuple[str, str, object]] = (), kind: str = "") -> str:
    """Render a link that opens a table filtered by the conditions."""
    conditions = f' data-where="{escape(as_json(where))}"' if where else ""
    of_kind = f' class="{kind}"' if kind else ""
    return f'<a href="#table-{table}"{of_kind}{conditions}>{escape(text)}</a>'


def _percent(share: float) -> str:
    """Rounded down: 100 % means all."""
    return f"{int(share * 1000) / 10:g} %"


def _about(report: Report) -> str:
    run = report.run
    rules = f"{run.semantics} {run.broker_version or ''}".strip()
    retention = "" if run.retention_ms is None else f", offsets retention {duration(run.retention_ms)}"
    facts = {
        "Run": f"{run.run_id}, finished {_moment(run.finished_at_ms)}",
        "Rules": f"coordinator {rules}{retention}",
        "Input": f"{run.row['input_kind'][0].as_py()}: {', '.join(run.row['inputs'][0].as_py())}",
        "Made by": f"groupcoord_spark {run.row['version'][0].as_py()}",
    }
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{as_html(fact)}</dd></div>" for name, fact in facts.items())
