"""The report: one HTML file that needs nothing else, with every table, plot and sentence."""

import base64
import html
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pacer_mininet.experiments.claims import ANSWERS
from pacer_mininet.experiments.metrics import METRICS, shown
from pacer_mininet.experiments.tables import NOT_MADE, text_of

STYLE = """
:root { color-scheme: light dark; --text: #1d1d1f; --page: #fff; --soft: #63636b;
        --line: #d9d9de; --good: #e9f5ec; }
@media (prefers-color-scheme: dark) {
  :root { --text: #ececf1; --page: #17171a; --soft: #a5a5ae; --line: #3a3a41; --good: #1d3324; }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.2rem; max-width: 78rem; background: var(--page);
       color: var(--text); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .3rem 0 }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
h3 { font-size: 1rem }
.soft { color: var(--soft) }
.wide { overflow-x: auto; overflow-wrap: normal }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right }
table.many { font-size: .8rem }
table.many th, table.many td { padding: .35rem .35rem }
th { font-weight: 600 }
tbody th { text-align: left; font-weight: 400; position: sticky; left: 0;
           background: var(--page) }
thead th { vertical-align: bottom }
thead th.of { text-align: center; border-left: 1px solid var(--line) }
.paced { background: var(--good) }
img { max-width: 100%; height: auto; background: #fff; border-radius: 6px }
p { max-width: 46rem }
nav { columns: 2 18rem; font-size: .9rem; margin-top: 2rem }
nav ul { padding-left: 1.2rem }
section { margin-top: 3rem; border-top: 1px solid var(--line) }
footer { margin-top: 3rem; border-top: 1px solid var(--line); font-size: .8rem;
         color: var(--soft) }
.published { color: var(--soft) }
td.skipped { color: var(--soft); text-align: left; font-style: italic }
th.text, td.text { text-align: left }
@media (max-width: 40rem) {
  tbody th { position: static } body { padding: .7rem } th, td { padding: .25rem .3rem }
}
details { font-size: .8rem; color: var(--soft) }
pre { overflow-x: auto; overflow-wrap: normal }
"""

MANY_COLUMNS = 9

Picture = tuple[str, bytes]


def write(
    collected: Sequence[dict[str, Any]],
    pictures: dict[str, list[Picture]],
    path: Path,
    *,
    title: str = "The published tables and figures, made again",
    made_by: str = "",
) -> None:
    """Write the report of experiments, as `tables.collect` gives them.

    Args:
        collected: their tables.
        pictures: their plots by name.
        path: the path of the report.
        title: the title of the page.
        made_by: the origin of the report, in words.

    """
    contents = "".join(
        f'<li><a href="#{one["name"]}">{_text(_titled(one))}</a></li>' for one in collected
    )
    contents = f"<nav><ul>{contents}</ul></nav>" if len(collected) > 1 else ""
    sections = "".join(_section(one, pictures.get(one["name"], [])) for one in collected)
    scaled = any(one["quick"] for one in collected)
    warning = (
        "<p><strong>Runs that are scaled down do not compare with the papers.</strong></p>"
        if scaled
        else ""
    )
    footer = f"<footer><p>{_text(made_by)}</p></footer>" if made_by else ""
    path.write_text(
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>P4 PSPacer: {html.escape(title)}</title>
<style>{STYLE}</style>
<h1>{html.escape(title)}</h1>
<p class="soft">Each figure is the median over its seeds, with the smallest and the largest in
brackets where they differ. The published figure stands below it.
<code>docs/experiments.md</code> describes how the runs are made.</p>
{GLOSSARY}{warning}{_claims(collected)}{contents}
{sections}{footer}
</html>
""",
        encoding="utf-8",
    )


GLOSSARY = """<details><summary>What the columns mean</summary><dl>
<dt>goodput; 2nd half<dd>payload that arrived in order, over the run's seconds or their last half
<dt>lost at the bottleneck, at the edge<dd>packets that the switches dropped, by their own counters
<dt>VB queue max<dd>largest queue in front of a virtual bottleneck that drains at the path's rate,
at the bottleneck's entrance. It includes the packet that arrives: 1,518 bytes are one full frame
<dt>ABW; max(Q)<dd>GtrcNET-1's bandwidth, and the largest queue of the virtual bottleneck, in each
100 ms. At its own rate (dynamic burstiness): the virtual bottleneck drains at the average bandwidth
of the same 100 ms. At the rate of the window before: a variant of this project
<dt>congestion window, mean<dd>the sender's window in packets, mean of samples every 100 ms
<dt>switch's RTT off the kernel's; in flight<dd>the edge switch's estimates for a flow that it
follows, compared with the sender's TCP_INFO twice a second: median distance of their ratio from 1
<dt>share; Jain's index<dd>1 (100 %) where all flows get the same, 1/n where one gets everything
<dt>done in time; last one done<dd>for transfers: how many ended within the run, and when the last
one ended
</dl></details>
"""


def _claims(collected: Sequence[dict[str, Any]]) -> str:
    """Return the claims, each with the worst figure found; empty where there are none."""
    lines = "".join(
        f'<tr><th scope="row"><a href="#{one["name"]}">{html.escape(one["name"])}</a></th>'
        f'<td class="text">{_text(claim["claim"])}</td>'
        f"<td>{'-' if claim['worst'] is None else format(claim['worst'], ',')}</td>"
        f"<td>{ANSWERS[claim['holds']]}</td></tr>"
        for one in collected
        for claim in one["claims"]
    )
    if not lines:
        return ""
    head = "".join(f'<th scope="col">{title}</th>' for title in ("worst", "holds"))
    return (
        '<h2>What is claimed</h2><div class="wide"><table>'
        f"<thead><tr><td></td><td></td>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _titled(one: dict[str, Any]) -> str:
    of = ", ".join(one["reproduces"])
    return f"{of}: {one['title']}" if of else f"{one['title']} (no published counterpart)"


def _section(one: dict[str, Any], pictures: Sequence[Picture]) -> str:
    body = _virtual_table(one) if "virtual" in one else _table(one)
    drawn = "".join(
        f'<h3>{html.escape(title)}</h3><img alt="{html.escape(title)}" '
        f'src="data:image/png;base64,{base64.b64encode(content).decode()}">'
        for title, content in pictures
    )
    said = "".join(f"<p>{_text(text)}</p>" for text in one["sentences"])
    source = f'<p class="soft">{_text(one["source"])}</p>' if one["source"] else ""
    return (
        f'<section id="{one["name"]}"><h2>{_text(_titled(one))}</h2>{source}'
        f'<div class="wide">{body}</div>{_compared(one)}{drawn}{said}{_commands(one)}</section>'
    )


def _text(text: str) -> str:
    """Return text as HTML; words in backticks become code."""
    parts = html.escape(text).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


def _compared(one: dict[str, Any]) -> str:
    """Return how conditions and figures compare with the published ones; empty without these."""
    return _texts("Conditions", one["conditions"]) + _texts(
        "Beside the published figures", one["compared"]
    )


def _texts(title: str, rows: Sequence[dict[str, str]]) -> str:
    """Return rows of text by column title as a table; empty without rows."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col" class="text">{name}</th>' for name in rows[0])
    lines = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f'<td class="text">{html.escape(value)}</td>' for value in others)
        + "</tr>"
        for first, *others in (row.values() for row in rows)
    )
    return (
        f'<h3>{title}</h3><div class="wide"><table class="many">'
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _table(one: dict[str, Any]) -> str:
    metrics = one["metrics"]
    lines = []
    last = None
    for row in one["rows"]:
        if row["skipped"] == NOT_MADE:
            continue
        group = row["row"] if row["row"] != last else ""
        last = row["row"]
        title = f'<th scope="row">{html.escape(group)}</th>'
        title += f'<td class="text">{html.escape(row["column"])}</td>'
        if row["skipped"] is not None:
            cells = f'<td class="skipped" colspan="{len(metrics)}">{_text(row["skipped"])}</td>'
        else:
            cells = "".join(_cell(name, row) for name in metrics)
        mark = ' class="paced"' if row["column"].startswith("paced") else ""
        lines.append(f"<tr{mark}>{title}{cells}</tr>")
    if not lines:
        return ""
    many = ' class="many"' if len(metrics) > MANY_COLUMNS else ""
    return (
        f"<table{many}><thead>{_head(list(metrics.values()))}</thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _head(titles: list[str]) -> str:
    """Return the lines of a table's head: titles `GROUP: TITLE` get a line for the groups."""
    split = [title.rpartition(": ") for title in titles]
    groups = "".join(
        f'<th scope="colgroup" class="of" colspan="{len(list(columns))}">{html.escape(group)}</th>'
        for group, columns in itertools.groupby(group for group, _, _ in split)
    )
    head = "".join(f'<th scope="col">{html.escape(title)}</th>' for _, _, title in split)
    above = f"<tr><td></td><td></td>{groups}</tr>" if any(group for group, _, _ in split) else ""
    return f"{above}<tr><td></td><td></td>{head}</tr>"


def _cell(name: str, row: dict[str, Any]) -> str:
    text = html.escape(shown(name, row["values"].get(name)))
    if name in row["published"]:
        digits = METRICS[name].digits if row["published"][name] % 1 else 0
        figure = f"{row['published'][name]:,.{digits}f}"
        if name in row["doubts"]:
            figure += f" ({html.escape(row['doubts'][name])})"
        text += f'<br><span class="published">{figure}</span>'
    return f"<td>{text}</td>"


def _virtual_table(one: dict[str, Any]) -> str:
    """Return the table of the switch alone: `tests/accuracy` has made the rows."""
    rows = one["virtual"]
    if not rows:
        return ""
    names = [name for name in rows[0] if name != "published"]
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    lines = "".join(
        "<tr>" + "".join(_virtual_cell(name, row) for name in names) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _virtual_cell(name: str, row: dict[str, Any]) -> str:
    text = html.escape(text_of(row[name]))
    published = row.get("published", {})
    if name in published:
        text += f'<br><span class="published">{html.escape(text_of(published[name]))}</span>'
    return f"<td>{text}</td>"


def _commands(one: dict[str, Any]) -> str:
    made = [row for row in one["rows"] if row["skipped"] is None]
    if not made:
        return ""
    lines = []
    for row in made:
        seeds = ", ".join(map(str, row["seeds"]))
        lines.append(f"{row['row']}, {row['column']} (Linux {row['kernel']}, seeds {seeds}):")
        lines += [f"  {command}" for command in row["commands"]]
        lines.append(f"  {row['scenario']}")
    text = html.escape("\n".join(lines))
    return f"<details><summary>Command lines and settings</summary><pre>{text}</pre></details>"
