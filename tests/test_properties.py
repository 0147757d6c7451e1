"""Properties files, as java.util.Properties reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.properties import read_properties, without_values


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a=1\nb = 2 \n c:3\nd 4\ne\t=\t5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("# x=1\n! y=2\n\n  # z=3\na=b=c:d", {"a": "b=c:d"}),
        ("a=1,\\\n   2,\\\r\n 3\nb=\\\\\nc=4", {"a": "1,2,3", "b": "\\", "c": "4"}),
        (r"a\=b\:c\ d=\u00e9\tx\y", {"a=b:c d": "é\txy"}),
        ("alone\na=1\na=2", {"alone": "", "a": "2"}),
    ],
)
def test_names_end_at_the_first_separator(tmp_path: Path, text: str, read: dict[str, str]) -> None:
    (tmp_path / "server.properties").write_bytes(text.encode())
    assert read_properties(str(tmp_path / "server.properties"), "The file") == read


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^The settings file \S+ cannot be read: Is a directory\.$"):
        read_properties(str(tmp_path), "The settings file")


@pytest.mark.parametrize("said", ["Invalid value S3CRET for request.timeout.ms", "Value not specified for key 'S3CRET' in JAAS config"])
def test_what_a_client_says_of_its_settings_shows_no_value(said: str) -> None:
    jaas = 'org.example.Module required username="bob" password=S3CRET;'
    for settings in ({"request.timeout.ms": "S3CRET"}, {"sasl.jaas.config": jaas}):
        assert without_values(said, settings) == said.replace("S3CRET", "…")
