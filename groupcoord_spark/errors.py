"""The errors that stop a run. Each message is one sentence that names the thing, the place and the way out.

A record that cannot be decoded never raises one of them: it becomes a row of ``quarantined_records`` or ``warnings``.
"""

from typing import Final


class GroupcoordError(Exception):
    """Raised when a run cannot be done; the message is the one sentence that the user reads. Exit code 1."""

    exit_code = 1


class SparkMissingError(GroupcoordError, ImportError):
    """Raised when a command or a function needs Spark, and this Python has only the small installation."""

    PACKAGES: Final = frozenset(("pandas", "py4j", "pyspark"))

    def __init__(self, missing: ModuleNotFoundError) -> None:
        super().__init__(
            f"This needs Spark, and the Python package {missing.name} is not installed here. In the directory of the README run"
            " pip install --editable '.[spark]', or use the Python of a platform that brings Spark."
        )

    @classmethod
    def explains(cls, missing: ModuleNotFoundError) -> bool:
        """Return whether the module that is missing is one of Spark's."""
        return (missing.name or "").partition(".")[0] in cls.PACKAGES


class UsageError(GroupcoordError):
    """Raised when the command line or an input must change: an option's value, a path that is not there. Exit code 2."""

    exit_code = 2


class InputError(UsageError):
    """Raised when an input is missing or is not a copy of the offsets topic."""


class BadCopyError(InputError):
    """Raised when an input can be read, but a run made of it would replace a good run with less, or with something else."""


class InputChangedError(InputError):
    """Raised when a file of an input was cut, replaced or deleted while it was read: the log is in use. Reading it again may help."""

    exit_code = 1


class StoreError(InputError):
    """Raised when the object store of an input does not answer, refuses the access keys, or has no such bucket."""

    exit_code = 1


class WarehouseError(GroupcoordError):
    """Raised when a warehouse cannot be read or written, or is not one of ours."""
