"""``groupcoord verify``: the warehouse against what a broker answers about its groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from groupcoord_spark.cli.options import Common, ShownRun, command, common_options, semantics_of, shown_run_options
from groupcoord_spark.cli.render import second
from groupcoord_spark.errors import UsageError
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.verification import Answers, BrokerComparison, StateOfRun

SCHEME: Final = "kafka://"
SHOWN_NAMES: Final = 10
COLUMNS: Final = ("group", "what", "ours", "theirs")


@command(epilog="Example: groupcoord verify --against tests/golden/classic-modern/answers.json")
@click.option("--against", required=True, metavar="kafka://HOST:PORT|FILE", help="The cluster to ask, or a file of saved answers.")
@click.option("--save", metavar="FILE", help="Write the cluster's answers to this file and compare nothing: no warehouse is needed.")
@click.option(
    "--command-config", metavar="FILE", help="A Kafka client's properties file for the cluster: security.protocol, sasl.jaas.config."
)
@shown_run_options
@common_options
def verify(common: Common, against: str, save: str | None, command_config: str | None, shown_run: ShownRun) -> int:
    """State of a run against a broker's own answers: groups, members, assignments, committed offsets, open transactions.

    Every difference is a row: what we say (OURS) and what the broker says (THEIRS), - where one side has nothing. Ends with 1 if there is
    one, with 0 and a sentence on stderr otherwise.

    A cluster answers about its present state, and the warehouse contains the log as of its copy. Write the answers with --save when you
    make the copy, and give that file with --against after the run.
    """
    from groupcoord_spark.verification import compare, read_answers, state_of, write_answers

    is_live = against.startswith(SCHEME)
    if not is_live and (save or command_config):
        option = "--save" if save else "--command-config"
        raise UsageError(f"{option} is for a cluster, and {against!r} is none. Write --against kafka://HOST:PORT.")
    if save:
        answers = _answers_of(against, command_config)
        write_answers(save, answers)
        groups, offsets = counted(len(answers.groups or ()), "group"), counted(len(answers.offsets or ()), "committed offset")
        common.say(f"{groups} and {offsets} saved in {save}.")
        return 0
    warehouse, run = common.run(shown_run, is_said=False)
    state = state_of(warehouse, run.cluster, run=run)
    answers = _answers_of(against, command_config, state) if is_live else read_answers(against)
    comparison = compare(state, answers, semantics=semantics_of(run))
    if comparison.differences or common.output != "table":
        common.show(COLUMNS, comparison.differences, least_widths=[15, 15, 10, None])
    common.say(f"{_verdict(comparison)} Cluster {run.cluster!r} as of {second(run.as_of_ms)}, answers of {_source_of(answers)}.")
    return 1 if comparison.differences else 0


def _verdict(comparison: BrokerComparison) -> str:
    compared = {"group": comparison.groups, "member": comparison.members, "committed offset": comparison.offsets}
    compared_counts = ", ".join(counted(count, noun) for noun, count in compared.items())
    unasked = _unasked(comparison.unasked, "group") + _unasked(comparison.unasked_topics, "topic")
    differences = counted(len(comparison.differences), "difference") if comparison.differences else "No difference"
    return f"{differences} in {compared_counts}, {counted(comparison.pending, 'offset')} in open transactions.{unasked}"


def _unasked(names: Sequence[str], noun: str) -> str:
    if not names:
        return ""
    shown = ", ".join(map(repr, names[:SHOWN_NAMES])) + (", ..." if len(names) > SHOWN_NAMES else "")
    return f" {counted(len(names), noun)} could not be asked about: {shown}."


def _source_of(answers: Answers) -> str:
    if answers.asked_at_ms is None:
        return answers.source
    return f"{answers.source} given {second(answers.asked_at_ms[1])}"


def _answers_of(against: str, command_config: str | None, state: StateOfRun | None = None) -> Answers:
    from groupcoord_spark.properties import read_properties
    from groupcoord_spark.verification import connected

    properties = read_properties(command_config, "The client's properties file") if command_config else {}
    with connected(against, properties, command_config or "") as cluster:
        return cluster.answers(state)
