"""One self-contained page about one night: what is worst first, pictures, and the tables behind every number.

The page asks no network for anything: rows, pictures' specifications and the library that draws them are in the file. Texts from the
topic travel as packed data and become text nodes, never HTML.
"""

from __future__ import annotations

from groupcoord_spark.report.gather import gather
from groupcoord_spark.report.page import index, page
