"""HTML for notebooks. Everything that comes from a store is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

SHOWN = 20  # rows of a table, and columns of metrics


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; of more than SHOWN rows the first and the last ones, and how many there are."""
    all_rows = list(rows)
    shown, more = all_rows, ""
    if len(all_rows) > SHOWN:
        shown = [*all_rows[:SHOWN // 2], ["…"] * len(head), *all_rows[-SHOWN // 2:]]
        more = f"<p>{len(all_rows)} in all</p>"
    cells = "".join(f"<tr>{''.join(_cell('td', c) for c in row)}</tr>" for row in shown)
    heads = "".join(f"<th scope='col'>{_escape(h)}</th>" for h in head)
    return f"<p><b>{_escape(title)}</b></p><table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table>{more}"


def failed(title: str, error: Exception) -> str:
    """What is shown where the program failed."""
    return f"<p><b>{_escape(title)}</b>: {_escape(str(error))}</p>"


def _escape(text: str) -> str:
    """HTML of a text. A byte of a name that is no UTF-8 is shown as a mark, for no page can have it."""
    return html.escape(text.encode(errors="surrogateescape").decode(errors="replace"))


def _cell(tag: str, value: object) -> str:
    return f"<{tag}>{_escape(str(value))}</{tag}>"


def size(n: int) -> str:
    """Bytes for people."""
    value, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{n} B" if unit == "B" else f"{value:.3g} {unit}"
