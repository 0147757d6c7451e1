"""``groupcoord verify`` for schedulers that start jobs: the same options, the same words. It needs no Spark."""

import sys

from groupcoord_spark.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "verify")
    main()
