"""``groupcoord doctor``: why the offsets topic is large, slow or stuck, from a copy of a log directory or from a run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli.doctor_changes import report_cleaning, report_matrix, report_partitions, report_upgrade
from groupcoord_spark.cli.doctor_report import write_diagnosis, write_run
from groupcoord_spark.cli.options import Common, Moment, ShownRun, alert, command, common_options_with_output, shown_run_options
from groupcoord_spark.errors import GroupcoordError, UsageError

if TYPE_CHECKING:
    from groupcoord_spark.answers.health_history import HealthHistory
    from groupcoord_spark.doctor import HealthSettings

REFUSED: Final = "refused"
"""What --fail-on takes for --after-cleaning and --upgrade-to: the release refuses a record."""
OF_INPUT: Final = {
    "as_of_ms": "--as-of",
    "settings_file": "--settings",
    "transaction_state": "--transaction-state",
    "after_cleaning": "--after-cleaning",
    "upgrade_to": "--upgrade-to",
    "matrix": "--matrix",
    "broker_version": "--broker-version",
    "partitions": "--partitions",
}
"""Parameter -> option that asks about an INPUT and not about a run."""


class FindingNames(click.ParamType):  # type: ignore[type-arg]
    """Findings separated by commas, by name or by short name, or ``sick`` or ``watch`` for all of a severity. The command gets names."""

    name = "FINDING,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        from groupcoord_spark.doctor import FINDINGS, Severity

        if isinstance(value, frozenset):
            return value
        short = {kind.short_name: name for name, kind in FINDINGS.items()}
        names: set[str] = set()
        for word in (word.strip() for word in str(value).split(",")):
            if word in ("sick", "watch"):
                names |= {name for name, kind in FINDINGS.items() if kind.severity >= Severity[word.upper()]}
            elif word == REFUSED or word in FINDINGS or word in short:
                names.add(short.get(word, word))
            else:
                self.fail(f"{word!r} is not a finding. Write sick, watch, {REFUSED}, or some of {', '.join(short)}.", param, ctx)
        return frozenset(names)


@command(epilog="Example: groupcoord doctor tests/golden/classic-modern/logs")
@click.argument("inputs", metavar="INPUT...", nargs=-1)
@click.option(
    "--fail-on",
    type=FindingNames(),
    default=None,
    help="End with exit code 3 when there is such a finding: hanging,cleaner_stopped or sick.",
)
@click.option(
    "--as-of", "as_of_ms", type=Moment(), help="When the copy was made; ages are measured from then. [default: its newest record]"
)
@click.option(
    "--settings", "settings_file", metavar="FILE", help="A broker's server.properties, or the topic's configs, as lines NAME=VALUE."
)
@click.option(
    "--transaction-state",
    metavar="DIR",
    help="A copy of __transaction_state-N, or of a directory with it: the coordinator's own log, which knows its transactions.",
)
@click.option(
    "--after-cleaning",
    is_flag=True,
    help="Would the log still load, to the same state, after the log cleaner has passed up to any place? Also for --upgrade-to.",
)
@click.option("--upgrade-to", metavar="V", help="Would the coordinator of that release load the log, and what would it read differently?")
@click.option("--matrix", is_flag=True, help="The same for every release from 0.8.2 on.")
@click.option("--broker-version", metavar="V", help="The release in use, for the three options above. [default: 4.3]")
@click.option("--partitions", type=click.IntRange(1), metavar="N", help="What N partitions of __consumer_offsets would do to the groups.")
@click.option(
    "--warehouse",
    default=None,
    metavar="DIR",
    help="Adds since which run each finding is there, and the growth of the log. Without INPUT: what a run found.",
)
@click.option(
    "--cluster",
    envvar="GROUPCOORD_CLUSTER",
    show_envvar=True,
    metavar="NAME",
    help="The Kafka cluster, with --warehouse. [default: the warehouse's only one]",
)
@shown_run_options
@common_options_with_output
@click.pass_context
def doctor(
    ctx: click.Context,
    common: Common,
    inputs: tuple[str, ...],
    shown_run: ShownRun,
    fail_on: frozenset[str] | None,
    as_of_ms: int | None,
    settings_file: str | None,
    transaction_state: str | None,
    after_cleaning: bool,
    upgrade_to: str | None,
    matrix: bool,
    broker_version: str | None,
    partitions: int | None,
) -> int:
    """Diagnose the offsets topic, worst finding first, with evidence and remedy.

    INPUT is a log directory of a broker (log.dirs), a partition's directory in it, or a directory with copies of several brokers: each copy
    is judged, since each broker cleans its own. Copy the checkpoints, *.snapshot and *.txnindex too; each of them is optional. No broker
    is asked: where only the broker knows, a finding has the command that asks. The log of the transaction coordinator is read where INPUT
    has it (__transaction_state-N), and answers most of these questions.

    Without INPUT, show the findings in table topic_health: of the newest run, or of another one with --at or --run.

    sick: someone must act. watch: harmless by itself. normal: ordinary. An open transaction has a certainty: certain and likely ones hang.
    """
    from groupcoord_spark.doctor import diagnose, read_copies, read_transaction_states
    from groupcoord_spark.storage.location import Location

    if not inputs:
        return _run(common, shown_run, fail_on, [option for name, option in OF_INPUT.items() if ctx.params[name]])
    if (upgrade_to is not None) + matrix + (partitions is not None) > 1 or (after_cleaning and (matrix or partitions is not None)):
        raise UsageError("--upgrade-to, --matrix and --partitions are different questions, and only the first goes with --after-cleaning.")
    if broker_version is not None and upgrade_to is None and not matrix and not after_cleaning:
        raise UsageError("--broker-version is for --after-cleaning, --upgrade-to and --matrix. Add one of them, or leave it out.")
    if upgrade_to is not None or matrix or after_cleaning:
        return _change_of_release(common, inputs, fail_on, after_cleaning, upgrade_to, broker_version)
    history = _history(common, common.warehouse, shown_run) if common.warehouse else None
    if history is None and shown_run != ShownRun():
        raise UsageError("--at, --run and --look-back choose a run of a warehouse: add --warehouse.")
    settings = _settings(settings_file)
    _refuse_other_inputs(inputs)
    copies = read_copies(inputs)
    if partitions is not None:
        report_partitions(common, copies, _partition_count(inputs, settings_file), partitions, inputs)
        return 0
    transaction_states = read_transaction_states((Location.of(copy.uri) for copy in copies), transaction_state)
    diagnosis = diagnose(copies, settings, transaction_states, as_of_ms=as_of_ms)
    write_diagnosis(common, diagnosis, len(copies), history)
    for remark in diagnosis.remarks:
        common.say(remark)
    return _exit_code((finding.finding for finding in diagnosis.findings), fail_on)


def _run(common: Common, shown_run: ShownRun, fail_on: frozenset[str] | None, options_of_input: list[str]) -> int:
    """Shows what a run found."""
    warehouse = common.warehouse or os.environ.get("GROUPCOORD_WAREHOUSE") or "./warehouse"
    if not common.warehouse and not os.environ.get("GROUPCOORD_WAREHOUSE") and not Path(warehouse).is_dir():
        raise UsageError("There is no INPUT, and no ./warehouse. Name a copy of a log directory, or a --warehouse whose runs are asked.")
    if options_of_input:
        raise UsageError(f"{', '.join(options_of_input)}: this is asked about a log. Name a copy of a log directory as INPUT.")
    history = _history(common, warehouse, shown_run)
    if not history.rows:
        raise GroupcoordError(
            f"Run {history.run.run_id} in {warehouse} has no verdicts: it read no segments, or an earlier release made it."
            " Name a copy of a log directory as INPUT."
        )
    return _exit_code((finding.finding for finding in write_run(common, history)), fail_on)


def _history(common: Common, uri: str, shown_run: ShownRun) -> HealthHistory:
    from groupcoord_spark.answers.health_history import health_history

    return health_history(*replace(common, warehouse=uri).run(shown_run))


def _exit_code(findings: Iterable[str], fail_on: frozenset[str] | None) -> int:
    """3, after a sentence on stderr, where a finding of --fail-on is among these names; else 0."""
    failing = sorted(set(findings) & (fail_on or frozenset()))
    return alert(f"found {', '.join(failing)}" if failing else "")


def _change_of_release(
    common: Common,
    inputs: tuple[str, ...],
    fail_on: frozenset[str] | None,
    after_cleaning: bool,
    upgrade_to: str | None,
    broker_version: str | None,
) -> int:
    from groupcoord_spark.coordinator.semantics import semantics_for

    _refuse_other_inputs(inputs)
    in_use = semantics_for(broker_version=broker_version)
    if upgrade_to is None and not after_cleaning:
        report_matrix(common, inputs, in_use)
        return 0
    target = [] if upgrade_to is None else [semantics_for(broker_version=upgrade_to)]
    if after_cleaning:
        return _exit_code(report_cleaning(common, inputs, [in_use, *target]), fail_on)
    is_refused = report_upgrade(common, inputs, in_use, *target)
    return alert("the release refuses a record" if is_refused and REFUSED in (fail_on or ()) else "")


def _partition_count(inputs: tuple[str, ...], settings_file: str | None) -> int:
    """Return the current number of offsets partitions: from the settings, else from the groups' partitions."""
    from groupcoord_spark.coordinator.broker_settings import read_broker_settings
    from groupcoord_spark.coordinator.semantics import JAVA
    from groupcoord_spark.log import plan_logs
    from groupcoord_spark.pipeline.plan.partition_count import likely_partition_count
    from groupcoord_spark.properties import read_properties

    properties = read_properties(settings_file, "The settings file") if settings_file is not None else {}
    return read_broker_settings(properties, JAVA).offsets_partitions or likely_partition_count(plan_logs(inputs))


def _refuse_other_inputs(inputs: tuple[str, ...]) -> None:
    from groupcoord_spark.sources.inputs import InputKind, kind_of

    if kind_of(inputs) is not InputKind.SEGMENTS:
        raise UsageError("doctor reads a copy of a broker's log directory: only segments show batches, transactions and cleaning.")


def _settings(path: str | None) -> HealthSettings:
    from groupcoord_spark.coordinator.broker_settings import refuse_misspelled_names
    from groupcoord_spark.doctor import HealthSettings, read_health_settings
    from groupcoord_spark.doctor.settings import SETTING_NAMES
    from groupcoord_spark.properties import read_properties

    if path is None:
        return HealthSettings()
    properties = read_properties(path, "The settings file")
    try:
        if not SETTING_NAMES & properties.keys():
            refuse_misspelled_names(properties)
        return read_health_settings(properties)
    except UsageError as e:
        raise UsageError(f"{path}: {e}") from e
