"""The errors that stop a run. Each message is one sentence that names the thing, the place and the way out.

A record that cannot be decoded never raises one of them: it becomes a row of ``quarantined_records`` or ``warnings``.
"""


class GroupcoordError(Exception):
    """Raised when a run cannot be done; the message is the one sentence that the user reads. Exit code 1."""

    exit_code = 1


class UsageError(GroupcoordError):
    """Raised when the command line or an input must change: an option's value, a path that is not there. Exit code 2."""

    exit_code = 2


class InputError(UsageError):
    """Raised when an input is not there or is no dump of the offsets topic."""


class BadCopyError(InputError):
    """Raised when an input can be read, but a night made of it would replace a good night with less, or with something else."""


class InputChangedError(InputError):
    """Raised when a file of an input was cut, replaced or deleted while it was read: the log is in use. Reading it again may help."""

    exit_code = 1


class StoreError(InputError):
    """Raised when the object store of an input does not answer, refuses the access keys, or has no such bucket."""

    exit_code = 1


class WarehouseError(GroupcoordError):
    """Raised when a warehouse cannot be read or written, or is not one of ours."""
