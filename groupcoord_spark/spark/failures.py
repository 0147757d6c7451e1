"""Report Spark failures in one sentence: a worker's error, or the process that died, the stage, and the next step."""

import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from groupcoord_spark import errors
from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.spark.run_directory import RunDirectory, own_directory

OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
EXIT_CODES_OUT_OF_MEMORY = {3, 52}
"""Exit codes of a Java whose heap is full: from -XX:+ExitOnOutOfMemoryError, and from Spark itself."""

SECONDS_UNTIL_JAVA_HAS_ENDED = 5.0

_DEAD_WORKER = re.compile(r"Python worker (exited unexpectedly|failed)|PythonWorkerFactory|Python daemon")
_SHUT_DOWN = re.compile(r"SparkContext (was|has been) (shut ?down|stopped)|stopped SparkContext\b")
_UNCHANGED = "The tables are as they were."
_EXCEPTION = re.compile(r"(?:: |Caused by: |Exception in thread \"[^\"]*\" )?((?:[\w$]+\.)*[\w$]*(?:Error|Exception)\b(?!:? occurred).*)")
_KILLED = "Linux kills a process where memory runs out: look at `dmesg`."
_MORE_MEMORY = "Give Java more memory, for example with SPARK_DRIVER_MEMORY=4g in the environment."
_ANOTHER_PYTHON = (
    "Install groupcoord-spark on the executors. If the workers of this machine run another Python, set"
    f" PYSPARK_PYTHON={sys.executable} in the environment before Spark starts."
)
_FEWER_WORKERS = "Fewer workers at a time need less memory, for example with SPARK_MASTER=local[1] in the environment."


@contextmanager
def own_errors(stage: Callable[[], str | None]) -> Iterator[None]:
    """Convert Spark failures inside the block to GroupcoordError: one sentence with the stage and the process that died, if any.

    stage: gives the stage that the run is in. Every sentence says that the tables are as they were: the block must not change them.
    """
    try:
        yield
    except GroupcoordError:
        raise
    except Exception as failure:
        text = _text_of(failure)
        error = _own_error(failure, text, stage())
        if error is None:
            raise
        # The exception itself asks Java for its text each time it is printed, and by then Java is gone.
        raise error from RuntimeError(text).with_traceback(failure.__traceback__)


def why_not_started(directory: RunDirectory, failure: Exception) -> str:
    """Return why Spark did not start, from py4j's exception or else from Java's output."""
    if _java_has_ended(failure, directory):
        return _death_of_java(directory, " while Spark started")
    text = _text_of(failure) if isinstance(failure, Py4JJavaError | PySparkException) else ""
    error_line = _line_with_the_error(directory.java_output.read_text(errors="replace")) or _line_with_the_error(text)
    if error_line is not None and error_line.startswith(OUT_OF_MEMORY):
        return f"Spark did not start: {error_line}. {_MORE_MEMORY}"
    if error_line is None:
        return f"Java, in which Spark runs, ended before Spark was up, and did not say why. {_UNCHANGED} {_KILLED}"
    return f"Spark did not start: {_as_a_sentence(error_line)} Run it again with --debug to see all it said.{_kept_output(directory)}"


def _own_error(failure: Exception, text: str, stage: str | None) -> GroupcoordError | None:
    """Return the error for the user, or None if this is not a Spark failure."""
    directory = own_directory()
    when = f" in the stage `{stage}`" if stage else ""
    if _java_has_ended(failure, directory):
        if directory is not None:  # its workers may still run, and write files that belong to no table
            directory.end_processes()
        return GroupcoordError(_death_of_java(directory, when))
    if not isinstance(failure, PySparkException | Py4JError) and not _is_raised_in_py4j(failure):
        return None
    # Spark only gives the text of a worker's error.
    errors_of_ours = re.findall(r"^groupcoord_spark\.errors\.(\w+): (.+)$", text, re.MULTILINE)
    if errors_of_ours:
        name, sentence = errors_of_ours[-1]
        kind: type[GroupcoordError] = getattr(errors, name)
        return kind(sentence)
    if OUT_OF_MEMORY in text:
        return GroupcoordError(f"Java, in which Spark runs, ran out of memory{when}. {_UNCHANGED} {_MORE_MEMORY}{_kept_output(directory)}")
    if re.search(r"^([\w.]+\.)?\w*MemoryError\b", text, re.MULTILINE):
        return GroupcoordError(f"A Python worker of Spark ran out of memory{when}. {_UNCHANGED} {_FEWER_WORKERS}")
    if _DEAD_WORKER.search(text):
        return GroupcoordError(f"A Python worker of Spark died{when}. {_UNCHANGED} {_KILLED} {_FEWER_WORKERS}{_kept_output(directory)}")
    error_line = _line_with_the_error(text) or next((line.strip() for line in text.splitlines() if line.strip()), repr(failure))
    if (lacking := missing_module(text)) is not None:
        return GroupcoordError(f"{lacking} {_UNCHANGED}")
    return GroupcoordError(
        f"A Spark job of the run failed{when}, and the tables are as they were: {_as_a_sentence(error_line)} Run it again with --debug to"
        " see all of it."
    )


def missing_module(text: str) -> str | None:
    """Return the sentences about a module that Spark's workers cannot import, from the text of a failure; None where there is none."""
    error_line = _line_with_the_error(text) or ""
    if not error_line.startswith(("ModuleNotFoundError: ", "ImportError: ")):
        return None
    return f"Spark's Python workers cannot import what a job needs: {_as_a_sentence(error_line.partition(': ')[2])} {_ANOTHER_PYTHON}"


def _java_has_ended(failure: Exception, directory: RunDirectory | None) -> bool:
    """Return whether the Java process has ended. py4j reports this through many different exceptions."""
    is_connection_lost = _is_raised_in_py4j(failure) and not isinstance(failure, Py4JJavaError | PySparkException)
    if directory is None or directory.java is None:
        return is_connection_lost
    if is_connection_lost or _SHUT_DOWN.search(_text_of(failure)):
        # The connection ends some milliseconds before the process does.
        with suppress(subprocess.TimeoutExpired):
            directory.java.wait(SECONDS_UNTIL_JAVA_HAS_ENDED)
    return directory.java.poll() is not None


def _death_of_java(directory: RunDirectory | None, when: str) -> str:
    """Return a sentence about what happened to Java, that the tables are unchanged, and where to look."""
    code = directory.java.poll() if directory is not None and directory.java is not None else None
    printed = directory.java_output.read_text(errors="replace") if directory is not None else ""
    number = 0 if code is None else -code if code < 0 else code - 128
    advice = ""
    if code in EXIT_CODES_OUT_OF_MEMORY or OUT_OF_MEMORY in printed:
        how, advice = "ran out of memory", f" {_MORE_MEMORY}"
    elif number in {member.value for member in signal.Signals}:
        how = f"was killed by {signal.Signals(number).name}"
        advice = f" {_KILLED}" if number == signal.SIGKILL else ""
    elif code is None:
        how, advice = "died", f" {_KILLED}" if directory is not None else " See what spark-submit printed."
    else:
        how = f"ended with exit code {code}"
    return f"Java, in which Spark runs, {how}{when}. {_UNCHANGED}{advice}{_kept_output(directory)}"


def _kept_output(directory: RunDirectory | None) -> str:
    """Return a sentence with the path of Java's output file, or "" if Java printed nothing to a file."""
    if directory is None or not directory.java_output.stat().st_size:
        return ""
    directory.is_to_keep_output = True
    return f" What Java printed is in {directory.java_output}."


def _line_with_the_error(text: str) -> str | None:
    """Return the line with the error: Java's own if Java could not start, else the last exception, which caused the earlier ones."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "..."))]
    for line, next_line in pairwise(lines):
        if line == "Error occurred during initialization of VM":
            return next_line
        if next_line == "Error: Could not create the Java Virtual Machine.":
            return line
    named = [match[1] for line in lines if (match := _EXCEPTION.match(line)) and not _SHUT_DOWN.search(line)]
    logged = [line.split(" ERROR ", 1)[1] for line in lines if " ERROR " in line]
    return next(iter([*reversed(named), *reversed(logged)]), None)


def _as_a_sentence(line: str) -> str:
    return line if line.endswith(".") else f"{line}."


def _text_of(failure: Exception) -> str:
    """Return the text of the exception. For an exception in Java, py4j queries Java, which may have ended."""
    try:
        return str(failure)
    except Exception:
        return type(failure).__name__


def _is_raised_in_py4j(failure: Exception) -> bool:
    """Return whether py4j, or pyspark's reader of results, raised it. A lost connection is an OSError like any other."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(failure.__traceback__)]
    return bool(modules) and any(module.startswith(("py4j.", "pyspark.")) for module in modules)
