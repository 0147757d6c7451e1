"""Decision tables written as text, so that a test reads like the rule it checks."""


def table(text: str) -> list[dict[str, str]]:
    """Read a table with columns between ``|`` and a first line of names; ``"`` repeats the cell to the left."""
    names, *lines = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    rows = []
    for cells in lines:
        assert len(cells) == len(names), f"{len(cells)} cells under {len(names)} names: {cells}"
        for index, cell in enumerate(cells):
            if cell == '"':
                cells[index] = cells[index - 1]
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def by_release(text: str) -> list[tuple[str, dict[str, str], str]]:
    """(release, the row's other cells, the release's cell) for every column whose name is a release; a cell ``-`` is left out."""
    cases = []
    for row in table(text):
        conditions = {name: cell for name, cell in row.items() if not name[:1].isdigit()}
        cases += [(name, conditions, cell) for name, cell in row.items() if name[:1].isdigit() and cell != "-"]
    return cases


def case_id(value: object) -> str | None:
    """Return a readable name for a cell or a row of cells in pytest's output."""
    if isinstance(value, dict):
        return " ".join(str(cell) for cell in value.values())
    return value if isinstance(value, str) else None
