"""The library that draws the pictures, as it lies in the package."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files

import pytest

BROWSER = files("groupcoord_spark.report") / "browser"
SHA256 = "373b1f84072b31010f15ceb787be6b415c53936411aae267c8c2b2b6ccde46e7"
"""Of the script that `python docs/vega_bundle.py` wrote with vl-convert-python 1.9.0.post1."""


def test_the_library_is_the_file_that_the_command_made() -> None:
    assert hashlib.sha256(gzip.decompress((BROWSER / "vega.js.gz").read_bytes())).hexdigest() == SHA256


def test_the_licences_name_what_is_in_the_library() -> None:
    licences = (BROWSER / "vega-licences.txt").read_text(encoding="utf-8")
    for name in ("vega 6", "vega-lite 6", "vega-embed 7", "vega-interpreter 2", "d3-scale 4", "topojson-client 3"):
        assert f"{name}." in licences
    assert "Redistribution and use in source and binary forms" in licences


def test_the_command_makes_the_same_file_again(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    from importlib.metadata import version
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    pytest.importorskip("vl_convert")
    if version("vl-convert-python") != "1.9.0.post1":
        pytest.skip("another release of vl-convert-python carries other releases of Vega")
    spec = spec_from_file_location("vega_bundle", Path(__file__).parents[2] / "docs" / "vega_bundle.py")
    assert spec is not None and spec.loader is not None
    command = module_from_spec(spec)
    spec.loader.exec_module(command)
    monkeypatch.setattr(command, "BUNDLE", tmp_path_factory.mktemp("bundle") / "vega.js.gz")
    command.main()
    assert hashlib.sha256(gzip.decompress(command.BUNDLE.read_bytes())).hexdigest() == SHA256
