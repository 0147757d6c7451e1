"""``run_nightly``: a run as one function, for the command, for jobs and for notebooks.

The function finds out how its input is read, which cluster the input is of and from where the last run goes on, reads the input again
while a broker changes it, and looks after the warehouse each tenth run. A run that is refused or fails leaves all tables as they were.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from os import PathLike, fspath
from pathlib import Path
from typing import Final

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from groupcoord_spark.coordinator.broker_settings import SETTINGS_OF_RUNS, read_broker_settings, refuse_misspelled_names
from groupcoord_spark.coordinator.semantics import semantics_for
from groupcoord_spark.errors import GroupcoordError, InputChangedError, InputError, UsageError
from groupcoord_spark.log import LogPlan, cut_at_high_watermarks, plan_logs
from groupcoord_spark.log.directory import no_ends
from groupcoord_spark.moments import Moment, milliseconds_of, now_ms, retention_of
from groupcoord_spark.pipeline.accepted import ACCEPTED_WORDS, EMPTY, RECREATED
from groupcoord_spark.pipeline.admin_run import run_over_admin_api
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.pipeline.night import run_stages
from groupcoord_spark.pipeline.plan.carry_over import ends_of_last_run
from groupcoord_spark.pipeline.plan.earlier_runs import last_run_of, remembered_offsets
from groupcoord_spark.pipeline.plan.evidence import evidence_of_segments
from groupcoord_spark.pipeline.plan.guards import belongs_to
from groupcoord_spark.pipeline.plan.input_rows import RowPlan, plan_rows
from groupcoord_spark.pipeline.plan.live_rows import LiveRows
from groupcoord_spark.pipeline.progress import Progress, Stage
from groupcoord_spark.pipeline.read.rows import FileRows, FrameRows, RowSource, row_files
from groupcoord_spark.pipeline.run import DEFAULT_CLUSTER, RunRequest, Summary
from groupcoord_spark.properties import read_properties
from groupcoord_spark.protocol import fast_path
from groupcoord_spark.sources.end_offsets import EndOffsets, EndOffsetsSample, changed_at_ms, checked_end_offsets, read_end_offsets
from groupcoord_spark.sources.frames import frame_of_delta, readable, refuse_other_topics
from groupcoord_spark.sources.inputs import InputKind, kind_of
from groupcoord_spark.sources.live import FALLBACK_VERSION, KAFKA_CONNECTOR, extent_of, live_topic, log_extents_of
from groupcoord_spark.sources.parquet import is_told_by_its_files
from groupcoord_spark.sources.rows import EVERY_ROW, SOURCE
from groupcoord_spark.spark.failures import own_errors
from groupcoord_spark.spark.session import (
    PACKAGES,
    delta_settings,
    metastore_settings,
    require_package_on_workers,
    session,
    session_ends_with_block,
)
from groupcoord_spark.spark.stage_names import describe_job
from groupcoord_spark.storage.held_files import HeldFiles
from groupcoord_spark.storage.warehouse_location import cause_of
from groupcoord_spark.warehouse import Warehouse, open_warehouse
from groupcoord_spark.warehouse.maintenance import FEW_BYTES, Upkeep, maintain
from groupcoord_spark.warehouse.sql import publish as publish_views
from groupcoord_spark.warehouse.sql import refuse_bad_database
from groupcoord_spark.warehouse.write import open_to_write
from groupcoord_spark.wording import command_line, first_of

RUNS_BETWEEN_UPKEEP: Final = 10
"""A nightly run maintains the warehouse after this many runs of a cluster."""

READINGS_OF_A_LOG_IN_USE: Final = 5
"""So often a log is read whose files are replaced meanwhile. With Kafka's default, the log cleaner rests 15 seconds after a pass."""

_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")

PathOrUri = str | PathLike[str]


def run_nightly(
    inputs: PathOrUri | Sequence[PathOrUri] | DataFrame,
    warehouse: PathOrUri,
    *,
    cluster: str | None = None,
    as_of: Moment | None = None,
    until: Until | Moment | Mapping[int, int] | None = None,
    retention: timedelta | str | int | None = None,
    settings: PathOrUri | Mapping[str, str] | None = None,
    semantics: str | None = None,
    broker_version: str | None = None,
    topic_ids: PathOrUri | Mapping[str, str] | None = None,
    command_config: PathOrUri | Mapping[str, str] | None = None,
    full: bool = False,
    up_to_high_watermark: bool = False,
    end_offsets: PathOrUri | EndOffsets | None = None,
    with_end_offsets: bool = False,
    history: bool = True,
    accept: Collection[str] = (),
    upkeep: bool = True,
    publish: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress | Callable[[Stage], object] | None = None,
    show_output: bool = False,
) -> Summary:
    """Summary of a run that reads a copy of ``__consumer_offsets``, replays it, expires it, and writes the tables of a warehouse.

    Args:
        inputs: a path or URI, or several of one kind: log directories, ``.log`` files, Parquet, a Delta table, lines of JSON,
            ``kafka://HOST:PORT``, or where nobody may read the topic ``admin://HOST:PORT``; or a DataFrame with key, value, partition and
            offset, as Spark's Kafka source has them.
        warehouse: path or URI of the warehouse, which the first run makes.
        cluster: name of the Kafka cluster; None: the input's, else the warehouse's only one, else ``default``.
        as_of: the now of the rules of expiration; None: the moment of ``until``, else the present.
        until: replay to the state of that moment, or by offsets partition up to that end offset; the run is then a point-in-time run.
        retention: how long offsets are kept, for example ``"7d"``, a timedelta or milliseconds; None: as the settings say.
        settings: the broker's ``server.properties``, or its names and values.
        semantics, broker_version: the coordinator, ``java`` or ``scala``, and the release of Kafka whose rules apply.
        topic_ids: a JSON file or a mapping, topic name -> id.
        command_config: properties of Kafka's client for a ``kafka://`` or ``admin://`` input, a file or a mapping. They are never shown.
        full: read every log from its beginning and compare the state with the carried-over state.
        up_to_high_watermark: replay only to the broker's checkpointed high watermark.
        end_offsets: end offsets of topics, for lag: a file or a mapping, (topic, partition) -> offset.
        with_end_offsets: ask the brokers of a ``kafka://`` input for them.
        history: write the history tables too.
        accept: words of ACCEPTED_WORDS, to proceed although the input looks like a bad copy.
        upkeep: each tenth run join and delete files, for some seconds.
        publish: a database of Spark's metastore, or ``catalog.schema``, that gets views of every table and view, pinned to the run.
        spark: the session to use; None: the active session, else a new session that ends with the run.
        progress: is called with each stage that has ended (``print`` will do).
        show_output: what Java prints while a new session runs goes to stdout and stderr.
    Raises:
        UsageError: an argument makes no sense.
        InputError: an input cannot be used; its subclass BadCopyError: it looks like a bad copy, and ``accept`` does not name that.
        WarehouseError: the warehouse cannot be used.
        GroupcoordError: anything else that stops the run. All errors leave the tables as they were, except for one of ``publish``.
    """
    frame: DataFrame | None = None
    paths: tuple[str, ...] = (SOURCE,)
    if isinstance(inputs, str | PathLike | Sequence):
        given = [inputs] if isinstance(inputs, str | PathLike) else inputs
        if not given or (others := [each for each in given if not isinstance(each, str | PathLike)]):
            what = f"{others[0]!r} is of the type {type(others[0]).__name__}" if given else "there is none"
            raise InputError(f"The inputs of a run are paths or URIs, or one DataFrame, and {what}.")
        paths = tuple(fspath(path) for path in given)
    else:
        frame, spark = readable(inputs), inputs.sparkSession
    place = fspath(warehouse)
    rules, properties = semantics_for(semantics, broker_version), _properties(settings, "The settings file")
    try:
        if settings is not None:
            refuse_misspelled_names(properties)
        broker = read_broker_settings(properties, rules)
    except UsageError as e:
        raise UsageError(f"{settings if isinstance(settings, str | PathLike) else 'settings'}: {e}") from e
    kind = InputKind.DATAFRAME if frame is not None else kind_of(paths)
    if command_config is not None and kind not in (InputKind.KAFKA, InputKind.ADMIN):
        raise UsageError("--command-config is for Kafka's client, and no INPUT is kafka://HOST:PORT or admin://HOST:PORT. Leave it out.")
    if kind is InputKind.ADMIN and (full or with_end_offsets or not (as_of is until is end_offsets is None)):
        raise UsageError(
            "An admin:// INPUT answers about now, log ends included: leave out --as-of, --until, --full, --end-offsets and"
            " --with-end-offsets."
        )
    if up_to_high_watermark and (until is not None or kind is not InputKind.SEGMENTS):
        raise UsageError(
            "--up-to-high-watermark is for a run over a copy of a broker's log directory: not with --until, and not for other inputs."
        )
    if with_end_offsets and end_offsets is not None:
        raise UsageError("--end-offsets and --with-end-offsets are two samples of the same offsets. Leave one of them out.")
    if with_end_offsets and kind is not InputKind.KAFKA:
        raise UsageError("--with-end-offsets asks the brokers of a kafka:// INPUT, and there is none. Give --end-offsets FILE instead.")
    if unknown := sorted(set(accept) - set(ACCEPTED_WORDS)):
        raise UsageError(f"{unknown[0]!r} is not a word of accept. There are: {', '.join(ACCEPTED_WORDS)}.")
    if publish is not None:
        refuse_bad_database(publish)
    end = until_of(until)
    if end_offsets is None or isinstance(end_offsets, Mapping):
        sample = EndOffsetsSample(checked_end_offsets(end_offsets or {}))
    else:
        sample = read_end_offsets(fspath(end_offsets))
    opened = open_to_write(place)  # so that a warehouse that cannot be used is reported before Spark starts
    request = RunRequest(
        inputs=paths,
        warehouse=place,
        cluster=cluster or "",  # until the input has been looked at
        as_of_ms=milliseconds_of(as_of) if as_of is not None else now_ms() if end is None or end.time_ms is None else end.time_ms,
        retention_ms=broker.retention_ms if retention is None else retention_of(retention),
        semantics=rules.with_settings(properties),
        with_history=history,
        topic_names=_topic_names(topic_ids),
        settings={name: properties[name] for name in SETTINGS_OF_RUNS if name in properties},
        default_assignors=broker.default_assignors,
        offsets_partitions=broker.offsets_partitions,
        delete_retention=broker.delete_retention,
        until=end,
        accepted=frozenset(accept),
        full=full,
        log_ends=sample.offsets,
        log_ends_remark=sample.remark,
    )
    stages = progress if isinstance(progress, Progress) else Progress(progress)
    if sample.remark is not None:
        stages.remark(sample.remark)
    client = _properties(command_config, "The command config file")
    run = _Run(request, opened, kind, cluster, client, up_to_high_watermark, with_end_offsets, publish, show_output, spark, stages, frame)
    if isinstance(end_offsets, str | PathLike):
        run = replace(run, sampled_at_ms=changed_at_ms(fspath(end_offsets)))
    with session_ends_with_block():
        used, summary = run.run_while_the_input_changes()
        if publish is not None:
            _publish(run.session() if used is None else used, place, publish, stages)
    return replace(summary, upkeep=do_upkeep(place, summary.cluster)) if upkeep else summary


@dataclass(frozen=True, slots=True)
class _Run:
    """What stays the same each time that the input is read. cluster: from the user."""

    request: RunRequest
    warehouse: Warehouse
    """Opened once, before anything else is done."""
    kind: InputKind
    cluster: str | None
    client: Mapping[str, str]
    up_to_high_watermark: bool
    with_end_offsets: bool
    database: str | None
    show_output: bool
    spark: SparkSession | None
    progress: Progress
    frame: DataFrame | None
    """The input, where it is a DataFrame."""
    sampled_at_ms: int | None = None

    def run_while_the_input_changes(self) -> tuple[SparkSession | None, Summary]:
        """Run again while the input changes; return the session, if the run needs one, and its summary.

        A broker's log cleaner replaces files of a log in use. Where they cannot be held open, such a log is planned and read again.
        """
        for number in range(2, READINGS_OF_A_LOG_IN_USE + 1):
            try:
                return self._run()
            except InputChangedError:
                self.progress.end()
                self.progress.remark(f"The log was changed while it was read, and is read again ({number} of {READINGS_OF_A_LOG_IN_USE}).")
        return self._run()

    def _run(self) -> tuple[SparkSession | None, Summary]:
        request, progress = self.request, self.progress
        if self.kind is InputKind.ADMIN:
            return None, run_over_admin_api(replace(request, cluster=self.cluster or ""), self.warehouse, self.client, progress)
        with HeldFiles() as held:
            with own_errors(lambda: progress.stage):
                spark, plan, rows = self._planned(held)
                if self.with_end_offsets:
                    # After the end of the offsets topic is fixed: no commit of the run is newer than the sample.
                    progress.begin("ask for end offsets")
                    extents = log_extents_of(spark, live_topic(request.inputs, self.client))
                    request = replace(
                        request,
                        log_ends={place: end for place, (_, end) in extents.items()},
                        log_starts={place: start for place, (start, _) in extents.items()},
                    )
                    progress.end(rows=len(extents))
                sampled_at_ms = now_ms() if self.sampled_at_ms is None else self.sampled_at_ms
            cluster = self._cluster_of(plan, rows)
            request = replace(request, cluster=cluster, log_ends_sampled_at_ms=sampled_at_ms)
            return spark, run_stages(request, plan, spark, progress, rows, self.warehouse)

    def _planned(self, held: HeldFiles) -> tuple[SparkSession, LogPlan, RowPlan | None]:
        """Spark, and what there is to read. held: holds local segments open."""
        inputs, progress = self.request.inputs, self.progress
        if self.kind is InputKind.SEGMENTS:
            progress.begin("plan")
            knows_ends = self._goes_on and not self.up_to_high_watermark
            known_ends = (lambda cluster_id: ends_of_last_run(self.warehouse, self.cluster or cluster_id)) if knows_ends else no_ends
            plan = plan_logs(inputs, known_ends, held=held)
            if self.up_to_high_watermark:
                plan = cut_at_high_watermarks(plan)
            progress.end(bytes=sum(partition.bytes for partition in plan.partitions))
            self._cluster_of(plan, None)  # so that a missing --cluster is reported before Spark starts
            return self.session(), plan, None
        spark, source = self._source_of_rows()
        progress.begin("read the topic" if self.kind is InputKind.KAFKA else "look at the rows")
        with describe_job(spark, "nightly", str(progress.stage)):
            accepted = self.request.accepted
            rows = plan_rows(
                source,
                self.warehouse,
                cluster=self.cluster,
                goes_on=self._goes_on,
                accept_empty=EMPTY in accepted,
                accept_recreated=RECREATED in accepted,
            )
        progress.end(rows=rows.rows)
        return spark, rows.log, rows

    def _source_of_rows(self) -> tuple[SparkSession, RowSource]:
        inputs = self.request.inputs
        if self.kind is InputKind.KAFKA:
            topic = live_topic(inputs, self.client)
            spark = self._session_with_connector()
            return spark, LiveRows(spark, topic, extent_of(spark, topic))
        if self.frame is not None:
            spark = self.session()
            refuse_other_topics(self.frame)
            return spark, FrameRows(self.frame)
        if self.kind is InputKind.DELTA and not is_told_by_its_files(inputs):
            spark = self.session(with_delta=True)
            return spark, FrameRows(frame_of_delta(spark, inputs), self.kind, inputs)
        self.progress.begin("plan")
        files = row_files(self.kind, inputs)
        self.progress.end(bytes=sum(piece.end - piece.start for piece in files.pieces(EVERY_ROW)), note=files.forms.names)
        for remark in files.remarks:
            self.progress.remark(remark)
        spark = self.session()
        return spark, FileRows(spark, files.kind, files.inputs, files.pieces, files.remarks, files.forms)

    @property
    def _goes_on(self) -> bool:
        """The run may go on from the last run."""
        return not self.request.full and self.request.until is None

    def session(self, *, packages: str | None = None, is_older: bool = False, with_delta: bool = False) -> SparkSession:
        """Return the user's session, or a new session that ends with the run."""
        if self.spark is not None:
            require_package_on_workers(self.spark)
            return self.spark
        self.progress.begin("with an older connector" if is_older else "start Spark")
        settings = delta_settings() if with_delta else {}
        if packages is not None:
            settings[PACKAGES] = packages
        spark = session(show_output=self.show_output, settings=settings if self.database is None else metastore_settings(settings))
        self.progress.end()
        if (remark := fast_path.remark_on_compiling()) is not None:
            self.progress.remark(remark)
        return spark

    def _session_with_connector(self) -> SparkSession:
        """With the connector of Spark's own version, or with another where that one is not to be had."""
        try:
            return self.session(packages=f"{KAFKA_CONNECTOR}:{pyspark.__version__}")
        except (GroupcoordError, PySparkException):
            # Any other error comes again when Spark is started, and is reported then.
            return self.session(packages=f"{KAFKA_CONNECTOR}:{FALLBACK_VERSION}", is_older=True)

    def _cluster_of(self, plan: LogPlan, rows: RowPlan | None) -> str:
        """Return the cluster: the user's, else the input's, else the warehouse's only one, else ``default``.

        The warehouse's only cluster is taken if the input has records that the cluster's last run has seen. Raises UsageError otherwise.
        """
        named = self.cluster or plan.cluster_id
        if named is not None:
            return named
        place, clusters = self.request.warehouse, self.warehouse.clusters()
        if not clusters:
            return DEFAULT_CLUSTER
        if len(clusters) > 1:
            names = first_of([*map(repr, clusters)], 5)
            raise UsageError(f"{place} holds the clusters {names}. Say with --cluster which one this dump is of.")
        if not self.warehouse.clusters_with_nightly_runs():
            return clusters[0]  # it only has point-in-time runs, so another cluster's copy cannot replace a good run
        last_run = last_run_of(self.warehouse, clusters[0])
        evidence = evidence_of_segments(plan, remembered_offsets([last_run]), last_run) if rows is None else rows.evidence
        if not belongs_to(plan, last_run, evidence):
            raise UsageError(
                f"{place} holds the cluster {clusters[0]!r}, and nothing shows that this dump is of that cluster: there is no"
                " meta.properties, and the records that the last run remembers are not in it. Say with --cluster which one this dump"
                " is of."
            )
        return clusters[0]


def do_upkeep(warehouse: str, cluster: str) -> Upkeep | str | None:
    """On every tenth run, do the part of ``groupcoord maintain`` that takes seconds; return its result, or None on other runs.

    The run is done: a failure is a sentence.
    """
    try:
        if len(open_warehouse(warehouse).finished_runs(cluster)) % RUNS_BETWEEN_UPKEEP:
            return None
        return maintain(warehouse, cluster, most_bytes=FEW_BYTES)
    except (GroupcoordError, OSError) as e:
        return f"Upkeep could not be done, and the run is written all the same: {e}"


def _publish(spark: SparkSession, warehouse: str, database: str, progress: Progress) -> None:
    """Create the views of the run in the metastore. Raises GroupcoordError where Spark cannot; the run is written all the same."""
    from py4j.protocol import Py4JError

    progress.begin("publish")
    try:
        views = publish_views(spark, open_warehouse(warehouse), database)
    except (PySparkException, Py4JError) as error:
        printing = command_line("sql", "--print-views", "spark", warehouse=warehouse)
        raise GroupcoordError(
            f"The run is written, but Spark could not create its views in the database {database!r}: {cause_of(error)}"
            f" Mend that, and run the nightly again, or run what `{printing}` prints."
        ) from error
    progress.end(rows=len(views))


def until_of(until: Until | Moment | Mapping[int, int] | None) -> Until | None:
    """Return the end of a replay: a moment, or end offsets by offsets partition. Raises UsageError for anything else."""
    if until is None or isinstance(until, Until):
        return until
    if not isinstance(until, Mapping):
        return Until(str(until), time_ms=milliseconds_of(until))
    if not all(type(number) is int and type(end) is int and number >= 0 and end >= 0 for number, end in until.items()):
        raise UsageError("until must map offsets partitions to end offsets, for example {0: 1500, 7: 320}.")
    return Until("end offsets", end_offsets=dict(until))


def _properties(given: PathOrUri | Mapping[str, str] | None, what: str) -> Mapping[str, str]:
    """Read a properties file, or return a mapping. ``what`` names the file in errors."""
    if isinstance(given, Mapping):
        return {name: str(value) for name, value in given.items()}
    return {} if given is None else read_properties(fspath(given), what)


def _topic_names(given: PathOrUri | Mapping[str, str] | None) -> dict[str, str]:
    """Topic id -> name, from a JSON object of names and ids, in a file or as a mapping."""
    if given is None:
        return {}
    what = "topic_ids" if isinstance(given, Mapping) else f"The topic ids file {fspath(given)}"
    try:
        ids = given if isinstance(given, Mapping) else json.loads(Path(given).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{what} cannot be read: {why}.") from e
    except json.JSONDecodeError as e:
        raise UsageError(f"{what} is not JSON: {e}.") from e
    if not isinstance(ids, Mapping) or not all(isinstance(topic_id, str) for topic_id in ids.values()):
        raise UsageError(f'{what} must hold one JSON object, topic name -> id, for example {{"orders": "AZx9…"}}.')
    for name, topic_id in ids.items():
        if not _TOPIC_ID.fullmatch(topic_id):
            raise UsageError(
                f"{what} gives {name!r} the id {topic_id!r}, and ids have 22 letters, digits, - and _, as `kafka-topics --describe` prints"
                " them."
            )
    return {topic_id: name for name, topic_id in ids.items()}
