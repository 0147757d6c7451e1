"""Paths and URIs in the words that people type."""

from __future__ import annotations

import errno
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow.fs as pafs
import pytest
from deltalake.exceptions import DeltaError

from groupcoord_spark.errors import InputError, WarehouseError
from groupcoord_spark.storage import location
from groupcoord_spark.storage.location import Location, SegmentFile, shown, side_by_side, usual_uri
from groupcoord_spark.storage.object_store import FILES_AT_ONCE, trouble
from groupcoord_spark.storage.warehouse_location import locate, may_pass

AZURE = "Write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
DATABRICKS = "this is a path of Databricks, and {} is not mounted here"


@pytest.fixture(params=[True, False], ids=["databricks", "elsewhere"])
def on_databricks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    mounted = bool(request.param)
    real = Path.is_dir
    monkeypatch.setattr(Path, "is_dir", lambda path: mounted if str(path) in ("/dbfs", "/Volumes") else real(path))
    return mounted


@pytest.mark.parametrize(
    ("given", "usual"),
    [
        ("s3://bucket/logs", "s3://bucket/logs"),
        ("s3a://bucket/logs", "s3://bucket/logs"),
        ("s3n://bucket/logs", "s3://bucket/logs"),
        ("S3N://bucket/logs?region=eu", "s3://bucket/logs?region=eu"),
        ("gs://bucket/logs", "gs://bucket/logs"),
        ("gcs://bucket/logs", "gs://bucket/logs"),
        ("abfs://c@a.dfs.core.windows.net/x", "abfs://c@a.dfs.core.windows.net/x"),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
        ("hdfs://namenode:8020/logs", "hdfs://namenode:8020/logs"),
        ("file:/data/logs", "/data/logs"),
        ("file:///data/logs", "/data/logs"),
        ("file://localhost/data/my%20logs", "/data/my logs"),
        ("/data/logs", "/data/logs"),
        ("logs", "logs"),
        ("2026-11-22T08:00/logs", "2026-11-22T08:00/logs"),
    ],
)
def test_words_that_mean_a_place_everywhere(given: str, usual: str) -> None:
    assert usual_uri(given) == usual


@pytest.mark.parametrize(
    ("given", "path", "mount"),
    [
        ("dbfs:/logs", "/dbfs/logs", "/dbfs"),
        ("dbfs:///logs", "/dbfs/logs", "/dbfs"),
        ("/dbfs/logs", "/dbfs/logs", "/dbfs"),
        ("file:/dbfs/logs", "/dbfs/logs", "/dbfs"),
        ("dbfs:/Volumes/main/default/logs", "/Volumes/main/default/logs", "/Volumes"),
        ("/Volumes/main/default/logs", "/Volumes/main/default/logs", "/Volumes"),
    ],
)
def test_words_of_databricks_are_its_mounts_and_refused_elsewhere(given: str, path: str, mount: str, on_databricks: bool) -> None:
    if on_databricks:
        assert usual_uri(given) == path
        assert locate(given).uri == Location.of(given).uri == path
        return
    for place in (Location.of, locate):
        with pytest.raises((InputError, WarehouseError), match=DATABRICKS.format(mount)):
            place(given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("wasb://c@a.blob.core.windows.net/x", AZURE),
        ("wasbs://c@a.blob.core.windows.net/x", AZURE),
        ("adl://a.azuredatalakestore.net/x", AZURE),
        ("az://c/x", AZURE),
        ("s3:/bucket/logs", "two slashes are missing. Write s3://BUCKET/PATH"),
        ("s3a:bucket/logs", "two slashes are missing. Write s3://BUCKET/PATH"),
        ("s3:///logs", "the name of a bucket or container is missing. Write s3://BUCKET/PATH"),
        ("abfss://container/logs", "the storage account is missing. Write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"),
        ("hdfs:/logs", "Write hdfs://NAMENODE:8020/PATH"),
        ("abfss:/x", AZURE.replace("CONTAINER", ".*CONTAINER")),
        ("arn:aws:s3:::bucket/logs", "Write s3://BUCKET/PATH"),
        ("https://bucket.s3.amazonaws.com/logs", "a web address is not read. Write s3://BUCKET/PATH"),
        ("file://server/logs", "Write file:///PATH"),
        ("file:logs", "Write file:///PATH"),
        ("ftp://host/logs", "Give a path, or a URI of file, s3, gs, abfss or hdfs"),
    ],
)
def test_words_that_cannot_be_read_are_refused_with_what_works(given: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Location.of(given)
    with pytest.raises(WarehouseError, match=sentence):
        locate(given)


def test_all_paths_of_a_store_share_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    one, other = Location.of("s3a://bucket/logs/a%20b/x?region=us-east-1"), Location.of("s3://bucket/y/?region=us-east-1")
    assert one.filesystem is other.filesystem
    assert (one.path, other.path) == ("bucket/logs/a b/x", "bucket/y")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert Location.of("s3://bucket/y?region=us-east-1").filesystem is not other.filesystem


def test_a_warehouse_takes_no_options_and_secrets_in_its_uri() -> None:
    for given in ("s3://bucket/w?region=us-east-1", "s3://key:hunter2@bucket/w"):
        with pytest.raises(WarehouseError, match="Set the variables of the store instead") as refused:
            locate(given)
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("s3://key:hunter2@bucket/w?token=hunter2", "s3://bucket/w"),
        ("s3://key:a/hunter2+b@bucket/w", "s3://bucket/w"),
        ("s3:/key:hunter2@bucket/w", "s3:/bucket/w"),
        ("S3A:key:hunter2@bucket", "S3A:bucket"),
        ("abfss://box:hunter2@a.dfs.core.windows.net/w?sig=hunter2", "abfss://box@a.dfs.core.windows.net/w"),
        ("abfss://box:a/hunter2==@a.dfs.core.windows.net/w", "abfss://box@a.dfs.core.windows.net/w"),
        ("abfs://:hunter2@a.blob.core.windows.net/box/w", "abfs://a.blob.core.windows.net/box/w"),
        ("foo://user:hunter2@host:1/w", "foo://host:1/w"),
        *((given, given) for given in ("s3://bucket/of:team/me@home", "hdfs://host:8020/me@home", "abfss://box@a/me@home", "/a:b/c@d?e")),
    ],
)
def test_what_is_printed_and_stored_of_a_uri_has_no_secret(given: str, printed: str) -> None:
    assert shown(given) == printed


def test_an_end_point_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hunter2@store:9000")
    assert "the object store at http://store:9000 does not answer" in (trouble(OSError("NETWORK_CONNECTION")) or "")


DISK, STORE = pafs.LocalFileSystem(), pafs.S3FileSystem(anonymous=True, region="eu-west-1")


class TestSideBySide:
    @pytest.mark.parametrize("filesystem", [DISK, STORE], ids=["disk", "store"])
    @pytest.mark.parametrize("seconds", [0, 0.001])
    def test_keeps_the_order_and_raises_the_first_error(self, filesystem: pafs.FileSystem, seconds: float) -> None:
        def inverse(number: int) -> float:
            time.sleep(seconds)
            return 1 / (number - 50)

        assert side_by_side(inverse, range(50), filesystem) == [1 / (number - 50) for number in range(50)]
        assert side_by_side(inverse, [], filesystem) == []
        with pytest.raises(ZeroDivisionError):
            side_by_side(inverse, range(100), filesystem)

    @pytest.mark.parametrize(("waited", "in_this_thread"), [(0, 20), (3, 20), (3.01, 1)])
    def test_of_a_disk_is_done_in_one_thread_until_it_waits_for_its_files(
        self, waited: float, in_this_thread: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = SimpleNamespace(worked=0, waited=0.0)
        of_clock = SimpleNamespace(monotonic=lambda: clock.worked + clock.waited, process_time=lambda: clock.worked)
        monkeypatch.setattr(location, "time", of_clock)

        def work(_: int) -> int:
            clock.worked += 1
            clock.waited += waited
            return threading.get_ident()

        assert side_by_side(work, range(20), DISK).count(threading.get_ident()) == in_this_thread

    @pytest.mark.parametrize(
        ("filesystem", "most", "together"), [(DISK, 128, FILES_AT_ONCE), (DISK, 3, 3), (STORE, 128, 20), (STORE, 8, 8)]
    )
    def test_that_waits_is_done_by_so_many_threads(self, filesystem: pafs.FileSystem, most: int, together: int) -> None:
        alone = 1 if filesystem is DISK else 0
        all_wait, busy, most_busy = threading.Barrier(together), list[int](), list[int]()

        def work(number: int) -> None:
            busy.append(number)
            most_busy.append(len(busy))
            if number < alone:
                time.sleep(0.1)
            else:
                all_wait.wait(30)  # BrokenBarrierError where fewer are at work
            busy.remove(number)

        side_by_side(work, range(alone + 2 * together if together < 20 else 20), filesystem, most)
        assert max(most_busy) <= together


def test_data_ranges_of_a_file_that_cannot_be_opened_again_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"records")
    with SegmentFile(Location.of(str(path)), 7) as file:
        path.unlink()
        with pytest.raises(InputError, match=re.escape(f"{path}: the file cannot be read: [Errno 2]")):
            list(file.data_ranges(0, 7))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.EIO, "Error reading bytes from file"), True),
        (PermissionError(errno.EACCES, "Permission denied"), True),
        (FileNotFoundError(errno.ENOENT, "Failed to open local file"), False),
        (OSError("Couldn't deserialize thrift: TProtocolException"), False),
        (DeltaError("Kernel error: Io error: Input/output error (os error 5)"), True),
        (DeltaError("Generic error: No such file or directory (os error 2)"), False),
        (DeltaError("Generic S3 error: error sending request for url (http://store/bucket)"), True),
        (None, False),
    ],
)
def test_faults_that_another_try_may_pass_differ_from_damage(error: Exception | None, passes: bool) -> None:
    assert may_pass(error) is passes
