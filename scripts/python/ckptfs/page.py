"""HTML for notebooks. Everything that comes from a store is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

SHOWN = 20  # rows of a table


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of at most SHOWN rows, and how many there are besides."""
    all_rows = list(rows)
    cells = "".join(f"<tr>{''.join(_cell('td', c) for c in row)}</tr>" for row in all_rows[:SHOWN])
    more = f"<p>and {len(all_rows) - SHOWN} more</p>" if len(all_rows) > SHOWN else ""
    heads = "".join(f"<th scope='col'>{html.escape(h)}</th>" for h in head)
    return f"<p><b>{html.escape(title)}</b></p><table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table>{more}"


def failed(title: str, error: Exception) -> str:
    """What is shown where the program failed."""
    return f"<p><b>{html.escape(title)}</b>: {html.escape(str(error))}</p>"


def _cell(tag: str, value: object) -> str:
    return f"<{tag}>{html.escape(str(value))}</{tag}>"


def size(n: int) -> str:
    """Bytes for people."""
    value, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{n} B" if unit == "B" else f"{value:.3g} {unit}"
