"""``groupcoord warm-up``: what every start of Spark has in common, done once."""

from __future__ import annotations

from groupcoord_spark.cli.options import Common, command, common_options_without_warehouse
from groupcoord_spark.cli.progress import StageLines


@command("warm-up", epilog="Example: groupcoord warm-up")
@common_options_without_warehouse
def warm_up(common: Common) -> int:
    """Make every later run of this installation start some seconds sooner.

    Runs a small job and keeps the classes that Java loaded for it in a file of about 150 MB in the Python environment. Do it again after
    an update of Java or Spark: a file that does not fit is not used.
    """
    from groupcoord_spark.pipeline.warm_up import make_archive
    from groupcoord_spark.spark.session import session_ends_with_block

    with StageLines(quiet=common.quiet) as progress, session_ends_with_block():
        target = make_archive(progress)
    common.say(f"Later runs start from {target}.")
    return 0
