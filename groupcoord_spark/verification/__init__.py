"""The answers of a broker about its groups, and the differences between them and a warehouse.

``broker.ask`` gets the answers from a running cluster, through the Admin API of the package confluent-kafka. ``write_answers`` and
``read_answers`` keep the answers in a JSON file, so that a run can be compared with the answers of the time at which its log was copied.
``compare`` returns every difference. Nothing here needs Spark.
"""

from groupcoord_spark.verification.answers import Answers, read_answers, write_answers
from groupcoord_spark.verification.comparison import Comparison, Difference, StateOfRun, compare, state_of

__all__ = [
    "Answers",
    "Comparison",
    "Difference",
    "StateOfRun",
    "compare",
    "read_answers",
    "state_of",
    "write_answers",
]
