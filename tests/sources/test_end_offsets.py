"""The forms of a file of end offsets: a row for each line of the table in docs/how-to/other-inputs.md, and for unused forms."""

from __future__ import annotations

import re

import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.sources.end_offsets import checked_end_offsets, read_end_offsets

WANTED = {("orders", 0): 1500, ("orders", 1): 20}

FORMS = {
    "kafka-get-offsets": "orders:0:1500\norders:1:20\norders:2:\n",
    "GetOffsetShell --offsets 3": "orders:0:1500,1000,0\norders:1:20,0\n",
    "negative: none": "orders:0:1500\norders:1:20\norders:2:-1\norders:3:-2\norders:4:-1001\n",
    "with the time": "orders:0:1500:1795000000000\norders:1:20:\n",
    "with an ISO time": "orders,0,1500,2026-11-28T08:00:00Z\norders,1,20,2026-11-28T08:00:00Z\n",
    "CSV": "orders,0,1500\n# a comment\n\norders, 1, 20\n",
    "CSV with a heading": '"topic","partition","offset"\n"orders","0","1500"\n"orders","1","20"\n',
    "CSV of other columns": "cluster;partition;end offset;topic\nmain;0;1500;orders\nmain;1;20;orders\n",
    "tabs": "orders\t0\t1500\norders\t1\t20\n",
    "kafka-consumer-groups": (
        "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG\n"
        "app   orders  0  1400  1500  100\napp   orders  1  20  20  0\napp   orders  2  3  -  -\n"
    ),
    "kcat -Q": "orders [0] offset 1500\norders [1] offset 20\norders [2] offset -1001: Local: Unknown partition\n",
    "kcat -Q -J": (
        '{"orders":{"topic":"orders","0":{"partition":0,"offset":1500},"1":{"partition":1,"offset":20},'
        '"2":{"partition":2,"offset":7,"error":"Broker: Leader not available"}}}\n'
    ),
    "JSON by topic": '{"orders": {"0": 1500, "1": "20", "2": null, "3": -1}}',
    "JSON list": '[{"topic": "orders", "partition": 0, "offset": 1500}, {"topic": "orders", "partition": "1", "offset": "20"}]',
    "JSON list by topic": '[{"topic": "orders", "partitions": [{"partition": 0, "endOffset": 1500}, {"partition": 1, "latest": 20}]}]',
    "JSON lines": '{"topic": "orders", "partition": 0, "log_end_offset": 1500}\n{"topic": "orders", "partition": 1, "high": 20}\n',
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_each_form_is_read_whole(tmp_path, text):
    (tmp_path / "ends").write_text(text)
    assert read_end_offsets(str(tmp_path / "ends")) == (WANTED, None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[2026-11-28 08:00:00] WARN no leader (kafka)\norders:0:1500\norders:1:20\n", "1 of 3 lines is not used. .*line 1: .*WARN"),
        ("orders:0:1500\norders:1:20\norders:2:500:1700\n", "1 of 3 lines .* line 3: 'orders:2:500:1700' is not topic:partition:offset"),
        ("orders:0:1500\norders:1:20\norders:x:1\norders:3:many\n", "2 of 4 lines are not used"),
        ('[{"topic": "orders", "partitions": [{"partition": 0, "end": 1500}, {"partition": 1, "end": 20}]}, 7]', "1 of 3 parts .* not 7"),
        ('{"orders": {"0": 1500, "1": 20, "2": true}, "x": 3}', r'2 of 4 parts .* not {"orders": {"2": true}}'),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_counted_in_one_sentence(tmp_path, text, sentence):
    (tmp_path / "ends").write_text(text)
    offsets, remark = read_end_offsets(str(tmp_path / "ends"))
    assert offsets == WANTED
    assert remark is not None and remark.startswith(f"{tmp_path / 'ends'}: ") and "\n" not in remark
    assert re.search(sentence, remark)


@pytest.mark.parametrize("text", ["orders:2:500:1700", "orders 0", '{"orders": 7}', "[1, 2]", '{"orders": ', "[[]]"])
def test_a_file_of_which_nothing_is_understood_is_refused(tmp_path, text):
    (tmp_path / "ends").write_text(text)
    with pytest.raises(UsageError, match=r"ends(, line 1)?: .*(is not topic:partition:offset|expected)"):
        read_end_offsets(str(tmp_path / "ends"))


def test_a_mapping_has_ends_of_partitions():
    assert checked_end_offsets({("orders", 0): 5, ("orders", 1): -1001}) == {("orders", 0): 5}
    for wrong in ({"orders": 5}, {("orders", "0"): 5}, {("orders", 0): "5"}, {("orders", 0): True}):
        with pytest.raises(UsageError, match=r"Map \(topic, partition\) to the end offset"):
            checked_end_offsets(wrong)
