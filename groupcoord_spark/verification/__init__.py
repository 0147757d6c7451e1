"""What a broker answers about its groups, and where a warehouse says otherwise.

``ask`` takes the answers from a running cluster, through the Admin API of the package confluent-kafka. ``read_answers`` and
``write_answers`` keep them in a file of JSON, so that a night can be held against what was answered when its log was copied.
``compare`` gives every difference. No Spark is needed here.
"""

from groupcoord_spark.verification.answers import Answers, read_answers, write_answers
from groupcoord_spark.verification.comparison import Comparison, Difference, State, compare, state_of

__all__ = [
    "Answers",
    "Comparison",
    "Difference",
    "State",
    "compare",
    "read_answers",
    "state_of",
    "write_answers",
]
