"""``python -m groupcoord_spark``: the same as ``groupcoord``."""

from groupcoord_spark.cli import main

if __name__ == "__main__":
    main()
