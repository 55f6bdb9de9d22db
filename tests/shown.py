"""What a page shows of a command's output, compared with what it prints: words the same, numbers near."""

import re
from collections import defaultdict
from collections.abc import Sequence

NUMBER = re.compile(r"[−-]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
Cells = dict[tuple[str, str], list[str]]


def differences(shown: str, printed: str) -> list[str]:
    """Return the lines and cells of ``shown`` that ``printed`` has not, up to last digits of numbers.

    Of a row that is shown no column may be left out, but by a column "…".
    """
    lines, cells = _read(printed)
    wanted, columns = _read(shown)
    missing = [line for line in wanted if line != "…" and not any(near(line, other) for other in lines)]
    for row in dict.fromkeys(row for row, _ in columns):
        theirs, ours = ({column for at, column in table if at == row} for table in (cells, columns))
        missing += [f"{row}: {column} is left out without …" for column in theirs - ours if "…" not in ours]
    for (row, column), texts in columns.items():
        if column == "…":
            continue
        found = cells.get((row, column), [])
        missing += [
            f"{row}, {column}: {text}, printed: {found}"
            for text in texts
            if not any(near(text, other) for other in found)
        ]
    return missing


def near(one: str, other: str) -> bool:
    """Say whether two texts have the same words, and numbers within three errors, or 3 %, of each other."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    values, others = (list(map(_number, NUMBER.findall(text))) for text in (one, other))
    if "±" in one:
        spread = 3 * sum(values[1:])
        return abs(values[0] - others[0]) <= spread and _close(values[1:], others[1:], 0.5)
    return _close(values, others, 0.03)


def _close(some: Sequence[float], others: Sequence[float], most: float) -> bool:
    return all(abs(a - b) <= most * max(abs(a), abs(b)) for a, b in zip(some, others, strict=True))


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def _read(text: str) -> tuple[list[str], Cells]:
    """Return the lines that are of no table, and the cells of all tables by row and column."""
    lines, cells, header = list[str](), defaultdict[tuple[str, str], list[str]](list), list[str]()
    for line in filter(None, map(str.strip, text.splitlines())):
        if "┃" in line:
            header = [cell.strip() for cell in line.split("┃")]
        elif "│" in line:
            row = [cell.strip() for cell in line.split("│")]
            for column, cell in zip(header[1:], row[1:], strict=True):
                cells[row[0], column].append(cell)
        elif not set(line) <= set("━╇"):
            lines.append(line)
    return lines, cells
