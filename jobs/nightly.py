"""``groupcoord nightly`` for spark-submit: the same options, the same words."""

import sys

from groupcoord_spark.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "nightly")
    main()
