"""Object stores (S3, Google Cloud Storage, Azure): one client for each store, few requests for each object, and what their errors mean.

A request to an object store takes some 50 ms, and a store answers many requests at the same time. Readers therefore request many objects at
once, and never request data that a listing has already returned.
"""

import os
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

REQUESTS_AT_ONCE: Final = 128
"""Requests that wait for an object store at the same time: two for each of 10,000 files, of 50 ms each, then take eight seconds."""

FILES_AT_ONCE: Final = 8
"""Requests at the same time for a mounted file system, which may be slow too: a network's, or Databricks' /dbfs and /Volumes."""

_TYPES: Final = ("s3", "gcs", "abfs")
_VARIABLES: Final = ("AWS_", "GOOGLE_", "AZURE_", "STORAGE_EMULATOR_HOST")
_UNREACHABLE: Final = (
    *("NETWORK_CONNECTION", "REQUEST_TIMEOUT", "Could not connect", "Couldn't resolve", "Could not resolve", "error sending request"),
    *("Connection refused", "Timeout was reached"),
)
_REFUSED: Final = (
    *("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID", "SIGNATURE_DOES_NOT_MATCH", "UNRECOGNIZED_CLIENT"),
    *("EXPIRED_TOKEN", "HTTP status 401", "HTTP status 403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"),
    *("ExpiredToken", "403 Forbidden", "401 Unauthorized"),
)
_NO_BUCKET: Final = ("NO_SUCH_BUCKET", "NoSuchBucket", "The specified bucket does not exist", "The specified container does not exist")


def is_object_store(filesystem: pafs.FileSystem) -> bool:
    """Return whether every access to a file is a request to a store."""
    return filesystem.type_name in _TYPES


def variables() -> tuple[tuple[str, str], ...]:
    """Return the environment variables that an object store's client reads when it is created."""
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES)))


@lru_cache(maxsize=64)
def filesystem_of(uri: str, of_environment: tuple[tuple[str, str], ...]) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a URI, and the path in it.

    The same for the same URI: each client has connections of its own, and to connect takes longer than a request. of_environment: what
    ``variables`` returns, so that other keys or another end point make another client.

    Raises what ``pyarrow.fs.FileSystem.from_uri`` raises.
    """
    scheme, _, rest = uri.partition("://")
    if scheme == "s3":
        # pyarrow's S3 client keeps as many connections open as pyarrow has threads for input and output
        pa.set_io_thread_count(max(pa.io_thread_count(), REQUESTS_AT_ONCE))
        if "allow_delayed_open" not in rest:
            # a small file is then written in one request, not in three
            uri = f"{uri}{'&' if '?' in rest else '?'}allow_delayed_open=true"
    filesystem, path = pafs.FileSystem.from_uri(uri)
    return filesystem, path


def missing_bucket(filesystem: pafs.FileSystem, path: str) -> str | None:
    """Return the bucket of a path if the object store does not have it, else None.

    S3 answers a question about an object in the same way where the object is missing and where its bucket is.
    """
    if not is_object_store(filesystem):
        return None
    bucket = path.lstrip("/").partition("/")[0]
    return bucket if filesystem.get_file_info(bucket).type == pafs.FileType.NotFound else None


def no_such_bucket(bucket: str) -> str:
    """Return a sentence about a missing bucket, without its full stop."""
    return f"there is no bucket {bucket!r}{_end_point()}. Check its name, and AWS_REGION and AWS_ENDPOINT_URL for a store that speaks S3"


def trouble(error: BaseException) -> str | None:
    """Return the fault and the remedy if an error of pyarrow or delta-rs comes from an object store, else None. Without a full stop."""
    text = str(error)
    if any(word in text for word in _NO_BUCKET):
        return f"there is no such bucket{_end_point()}. Check its name, and AWS_REGION and AWS_ENDPOINT_URL for a store that speaks S3"
    if any(word in text for word in _REFUSED):
        return (
            f"the object store{_end_point()} refuses the access keys, or they may not do this. Check AWS_ACCESS_KEY_ID,"
            " AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN (or what your store calls them), and what they may do"
        )
    if any(word in text for word in _UNREACHABLE):
        return f"the object store{_end_point()} does not answer. Check the network, and AWS_ENDPOINT_URL for a store that is not Amazon's"
    return None


def _end_point() -> str:
    end_point = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    scheme, mark, rest = end_point.partition("://")
    return f" at {scheme}{mark}{rest.rpartition('@')[2]}" if end_point else ""
