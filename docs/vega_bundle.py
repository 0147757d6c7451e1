"""Makes the file of Vega, Vega-Lite and Vega-Embed that `groupcoord report` puts into its page: `python docs/vega_bundle.py`.

It needs vl-convert-python (extra ``dev``), which carries the libraries in itself: nothing is fetched. After an
update of vl-convert-python, write the hash that is printed into `tests/report/test_bundle.py`.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
from pathlib import Path

BUNDLE = Path(__file__).parents[1] / "groupcoord_spark" / "report" / "browser" / "vega.js.gz"

VEGA_LITE = "6.4"

SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""What the bundle leaves behind: one name, which draws a specification."""


def main() -> None:
    import vl_convert

    script = vl_convert.javascript_bundle(SNIPPET, VEGA_LITE).encode()
    BUNDLE.write_bytes(gzip.compress(script, mtime=0))
    version = importlib.metadata.version("vl-convert-python")
    print(f"{BUNDLE.name}: {len(script):,} bytes of Vega-Lite {VEGA_LITE} by vl-convert-python {version}")
    print(f"sha256 {hashlib.sha256(script).hexdigest()}")


if __name__ == "__main__":
    main()
