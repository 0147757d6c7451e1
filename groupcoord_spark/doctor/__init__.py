"""What makes the offsets topic large, slow or stuck: facts of each offsets partition and copy, and the findings that rest on them.

``read_copies`` makes the facts in one pass over the logs; ``diagnose`` judges the facts of all partitions and copies. The
rules need no broker, no Spark and no tables. Where the log cannot decide, a finding says so and names the command that asks the broker.
"""

from groupcoord_spark.doctor.facts import CopyFacts, FilesBeside, PartitionFacts
from groupcoord_spark.doctor.findings import Finding, Severity
from groupcoord_spark.doctor.gather.counts import ChunkKeys
from groupcoord_spark.doctor.gather.partition import PartitionGatherer, gather_partition
from groupcoord_spark.doctor.reading import all_files_beside, log_dir_of, read_copies, segments_beside
from groupcoord_spark.doctor.rules import FINDINGS
from groupcoord_spark.doctor.settings import HealthSettings, read_health_settings
from groupcoord_spark.doctor.verdicts import Diagnosis, PartitionVerdict, diagnose, diagnosis_of, verdict_of
from groupcoord_spark.log.broker_dir.transaction_states import KnownTransactions, read_transaction_states
