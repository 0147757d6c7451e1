"""One night of groupcoord as a DAG of Airflow. The worker needs groupcoord, Java 17 and the dump."""

from datetime import datetime, timedelta

from airflow import DAG
from airflow.providers.standard.operators.bash import BashOperator

WAREHOUSE = "s3://warehouses/offsets"

with DAG(
    "groupcoord",
    schedule="0 3 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,  # a night reads the log as it is now: there is nothing to catch up
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10)},
) as dag:
    # Exit code 2 is a copy that looks bad, or a wrong option: the retries end in the same sentence, and do no harm.
    nightly = BashOperator(
        task_id="nightly",
        bash_command=f"groupcoord nightly s3://dumps/kafka-logs --warehouse {WAREHOUSE} --cluster main",
    )
    morning = BashOperator(
        task_id="morning",
        retries=0,
        bash_command=f"groupcoord morning --warehouse {WAREHOUSE} --cluster main --fail-on danger",
    )
    nightly >> morning
