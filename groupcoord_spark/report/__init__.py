"""One self-contained page about one run: the worst findings first, charts, and the tables behind every number.

The page makes no network requests: rows, chart specifications and the chart library are in the file. Texts from the topic are packed data
and become text nodes, never HTML.
"""

from groupcoord_spark.report.gather import gather
from groupcoord_spark.report.page import index, page
