"""``groupcoord metrics``, what Prometheus makes of it, and the rules and the dashboard that are shipped."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from groupcoord_spark.answers.findings import NEWS
from groupcoord_spark.cli.metrics import metrics_of_run
from groupcoord_spark.cli.options import Common
from groupcoord_spark.errors import BadCopyError, UsageError
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, group, night, offset

pytestmark = pytest.mark.usefixtures("news_are_gathered_once")

ROOT = Path(__file__).parents[2]
ALERTS, DASHBOARD = ROOT / "conf" / "prometheus" / "alerts.yml", ROOT / "conf" / "grafana" / "groupcoord.json"
LAGS = {"behind": 70, "slow": 30, 'quo"ted\\\n': 20, "near": 5, "done": 0}
Series = dict[tuple[str, ...], float]

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")), reason="promtool is not installed: Debian's package prometheus has it"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two clusters; in one of them five groups with lag, one of them with a partition that has no sample, and one without a sample."""
    place = tmp_path_factory.mktemp("metrics")
    ends = [
        {"topic": "t", "partition": 0, "start_offset": 0, "end_offset": 100, "sampled_at_ms": AS_OF_MS, "run_id": "r", "source": "sample"}
    ]
    offsets = [*(offset(name, "t", 0, 100 - lag) for name, lag in LAGS.items()), offset("unsampled", "u", 0, 5), offset("slow", "u", 0, 5)]
    ends.append({**ends[0], "partition": 1, "end_offset": 10})
    offsets.append(offset("slow", "t", 1, 12, commit_timestamp_ms=AS_OF_MS - 60_000))
    health = {"copy": "/dump", "summary": ".", "evidence": "{}", "since_ms": AS_OF_MS, "read_at_ms": AS_OF_MS, "log_bytes": 4096}
    findings = [{"offsets_partition": 3, "finding": "cleaner_stopped", "severity": "sick", **health}]
    findings.append({"offsets_partition": 4, "finding": "healthy", "severity": "normal", **health})
    groups = [group(name) for name in LAGS] + [group("live", state="Stable", group_type="consumer", member_count=3)]
    rows = {"groups": groups, "committed_offsets": offsets, "log_ends": ends, "topic_health": findings}
    night(place, "prod", rows, records_read=7, records_decoded=5, records_quarantined=2, bytes_read=900)
    night(place, "test", {"groups": [group("a")]}, as_of_ms=AS_OF_MS - DAY_MS)
    return str(place)


def series(text: str) -> Series:
    """(metric, cluster, values of the other labels by their names) -> value, as prometheus-client reads the text."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge" and family.documentation
        for sample in family.samples:
            labels = {**sample.labels}
            labels.pop("warehouse", None)
            key = (sample.name.removeprefix("groupcoord_"), labels.pop("cluster"), *labels.values())
            assert key not in found
            found[key] = sample.value
    return found


def metrics(place: str, *options: str) -> Series:
    result = groupcoord("metrics", *options, "--warehouse", place)
    assert result.exit_code == 0, result.stderr
    return series(result.stdout)


def test_every_cluster_has_the_figures_of_its_newest_night(place: str) -> None:
    found = metrics(place)
    wanted = {
        ("night_as_of_timestamp_seconds", "prod"): AS_OF_MS / 1000,
        ("night_as_of_timestamp_seconds", "test"): (AS_OF_MS - DAY_MS) / 1000,
        ("night_records", "prod", "decoded"): 5,
        ("night_records", "prod", "quarantined"): 2,
        ("night_read_bytes", "prod"): 900,
        ("groups", "prod", "Empty", "classic"): 5,
        ("groups", "prod", "Stable", "consumer"): 1,
        ("members", "prod", "Stable", "consumer"): 3,
        ("committed_offsets", "prod"): 8,
        ("committed_offsets", "test"): 0,
        ("offsets_partition_size_bytes", "prod", "3"): 4096,
        ("findings", "prod", "cleaner_stopped", "sick"): 1,
        ("news", "prod", "danger", "sick"): 1,
        ("group_lag_records", "prod", "behind", "group"): 70,
        ("group_lag_missing_partitions", "prod", "slow", "group"): 1,
        ("group_beyond_end_partitions", "prod", "slow", "group"): 1,
        ("group_lag_ratio", "prod", "behind", "group"): 0.7,
        ("group_max_lag_records", "prod", 'quo"ted\\\n', "group"): 20,
    }
    assert {name: found.get(name) for name in wanted} == wanted
    assert {name[3] for name in found if name[:2] == ("news", "test")} == set(NEWS)
    assert not [name for name in found if "unsampled" in name or "healthy" in name]


@pytest.mark.parametrize(
    ("options", "own"),
    [
        (["--top", "2"], {"behind", "slow"}),
        (["--groups", "(s.*|n)+"], {"slow"}),
        (["--groups", ".*e.*", "--top", "1"], {"behind"}),
        (["--top", "0"], set()),
    ],
)
def test_the_number_of_series_is_bounded_and_the_sum_stays(place: str, options: list[str], own: set[str]) -> None:
    found = metrics(place, "--cluster", "prod", *options)
    lags = {name[2:]: value for name, value in found.items() if name[0] == "group_lag_records"}
    assert {name for name, kind in lags if kind == "group"} == own and sum(lags.values()) == sum(LAGS.values())
    assert found["group_max_lag_records", "prod", "", "rest"] == max(lag for name, lag in LAGS.items() if name not in own)
    assert found["lag_rest_groups", "prod"] == len(LAGS) - len(own)


def test_an_expression_that_explodes_elsewhere_is_harmless_and_a_wrong_one_is_said(place: str) -> None:
    assert metrics(place, "--groups", "(a+)+$", "--cluster", "prod")["lag_rest_groups", "prod"] == len(LAGS)
    result = groupcoord("metrics", "--groups", "(", "--warehouse", place)
    assert result.exit_code == 2 and "'(' is not a regular expression of RE2" in result.stderr


def test_a_file_is_replaced_as_a_whole_and_readable_to_others(place: str, tmp_path: Path) -> None:
    file = tmp_path / "groupcoord.prom"
    for cluster in ("prod", "test"):
        assert groupcoord("metrics", "--out", str(file), "--cluster", cluster, "--warehouse", place).exit_code == 0
    assert {name[1] for name in series(file.read_text())} == {"test"}
    assert [each.name for each in tmp_path.iterdir()] == [file.name] and file.stat().st_mode & 0o044 == 0o044
    result = groupcoord("metrics", "--out", str(tmp_path / "no" / "file"), "--warehouse", place)
    assert result.exit_code == 2 and "cannot be written" in result.stderr


def test_a_refused_run_keeps_the_figures_of_the_last_night_and_adds_its_exit_code(place: str, tmp_path: Path) -> None:
    file, common = tmp_path / "groupcoord.prom", Common(place, "prod")
    with metrics_of_run(file, common):
        pass
    done = series(file.read_text())
    with pytest.raises(BadCopyError), metrics_of_run(file, common):
        raise BadCopyError("an older copy")
    refused = series(file.read_text())
    code, at = ("nightly_exit_code", "prod"), ("nightly_last_run_timestamp_seconds", "prod")
    assert (done[code], refused[code]) == (0, 2) and time.time() - refused[at] < 600
    assert {name: value for name, value in refused.items() if name not in (code, at)} == {
        name: value for name, value in done.items() if name not in (code, at)
    }
    assert {name[1] for name in refused} == {"prod"}


def test_a_first_run_that_is_refused_or_a_look_back_has_its_exit_code_alone(tmp_path: Path) -> None:
    file = tmp_path / "groupcoord.prom"
    with pytest.raises(BadCopyError), metrics_of_run(file, Common(str(tmp_path / "w"), "prod")):
        raise BadCopyError("empty")
    assert sorted(name[0] for name in series(file.read_text())) == ["nightly_exit_code", "nightly_last_run_timestamp_seconds"]
    night(tmp_path / "w", "prod", {}, kind="point_in_time", settings={"until": "2025-12-31T00:00:00Z"})
    with metrics_of_run(file, Common(str(tmp_path / "w"))):
        pass
    assert {name[:2]: value for name, value in series(file.read_text()).items() if "code" in name[0]} == {("nightly_exit_code", ""): 0}
    for unwritable in (tmp_path / "no" / "file", file / "below", Path("/proc/groupcoord.prom")):
        with pytest.raises(UsageError, match="cannot be written"), metrics_of_run(unwritable, Common("w")):
            pytest.fail("the run began although its metrics cannot be written")


def expressions() -> Iterator[str]:
    for rule_group in yaml.safe_load(ALERTS.read_text())["groups"]:
        yield from (rule["expr"] for rule in rule_group["rules"])
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_rules_and_panels_ask_for_metrics_that_there_are_and_the_reference_has_all(place: str, tmp_path: Path) -> None:
    with metrics_of_run(tmp_path / "m.prom", Common(place, "prod")):
        pass
    names = {f"groupcoord_{name[0]}" for name in series((tmp_path / "m.prom").read_text())} | {
        "groupcoord_group_lag_seconds",
        "groupcoord_newest_record_timestamp_seconds",
    }
    asked = {name for expression in expressions() for name in re.findall(r"groupcoord_\w+", expression)}
    assert asked <= names and len(asked) >= 12
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert set(re.findall(r"^\| `(groupcoord_\w+)", page, re.MULTILINE)) == names | {"groupcoord_expiring_offsets"}


def promtool(*words: str, text: str = "") -> str:
    done = subprocess.run(["promtool", *words], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_prometheus
def test_promtool_takes_the_metrics_the_rules_their_tests_and_every_panel(place: str, tmp_path: Path) -> None:
    """`promtool check metrics` reads the older text format, as the textfile collector does."""
    assert promtool("check", "metrics", text=groupcoord("metrics", "--warehouse", place).stdout) == ""
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))
    assert "SUCCESS" in promtool("test", "rules", str(ALERTS.with_name("alerts_test.yml")))
    recorded = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions())]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": recorded}]}))
    assert f"{len(recorded)} rules found" in promtool("check", "rules", str(tmp_path / "panels.yml"))


@needs_prometheus
def test_prometheus_scrapes_the_file_and_an_alert_fires(place: str, tmp_path: Path) -> None:
    text = groupcoord("metrics", "--warehouse", place).stdout

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, socket.create_server(("127.0.0.1", 0)) as held:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = held.getsockname()[1]
        held.close()
        targets = [{"targets": [f"127.0.0.1:{server.server_port}"]}]
        times = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        jobs = [{"job_name": "groupcoord", "static_configs": targets}]
        config = {"global": times, "rule_files": [str(ALERTS)], "scrape_configs": jobs}
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        options = [
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (tmp_path / "log").open("w") as log, subprocess.Popen(["prometheus", *options], stdout=log, stderr=log) as prometheus:
            try:
                found = asked(port, 'groupcoord_group_lag_records{group="behind"}', prometheus)
                assert [(row["metric"]["cluster"], row["value"][1]) for row in found] == [("prod", "70")]
                firing = asked(port, 'ALERTS{alertname="GroupcoordDanger",alertstate="firing"}', prometheus)
                assert [(row["metric"]["cluster"], row["metric"]["what"]) for row in firing] == [("prod", "sick")]
            finally:
                prometheus.terminate()
                server.shutdown()


def asked(port: int, query: str, prometheus: subprocess.Popen[bytes]) -> list[dict[str, dict[str, str]]]:
    """Return the rows of a query, as soon as there is one."""
    address = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
    for _ in range(240):
        assert prometheus.poll() is None, "Prometheus has ended"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                if rows := json.load(answer)["data"]["result"]:
                    return list(rows)
        except OSError:
            pass
        time.sleep(0.25)
    raise AssertionError(f"no row of {query} within a minute")
