"""The report: one HTML file that needs nothing else, with every table, plot and sentence."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pacer_mininet.experiments.claims import ANSWERS
from pacer_mininet.experiments.metrics import METRICS, shown
from pacer_mininet.experiments.tables import text_of

STYLE = """
:root { color-scheme: light dark; --text: #1d1d1f; --page: #fff; --soft: #63636b;
        --line: #d9d9de; --good: #e9f5ec; }
@media (prefers-color-scheme: dark) {
  :root { --text: #ececf1; --page: #17171a; --soft: #a5a5ae; --line: #3a3a41; --good: #1d3324; }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.2rem; max-width: 70rem; background: var(--page);
       color: var(--text); font: 1rem/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .3rem 0 }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
.soft { color: var(--soft) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right }
th { font-weight: 600 }
tbody th { text-align: left; font-weight: 400; position: sticky; left: 0;
           background: var(--page) }
thead th { vertical-align: bottom }
.paced { background: var(--good) }
img { max-width: 100%; height: auto; background: #fff; border-radius: 6px }
p { max-width: 46rem }
nav { columns: 2 18rem; font-size: .9rem; margin-top: 2rem }
section { margin-top: 3rem; border-top: 1px solid var(--line) }
.published { color: var(--soft) }
td.skipped { color: var(--soft); text-align: left; font-style: italic }
td.group { text-align: left; white-space: nowrap }
details { font-size: .8rem; color: var(--soft) }
pre { overflow-x: auto }
"""

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
        path: where the report goes.
        title: of the page.
        made_by: what it was made of, in words.

    """
    contents = "".join(
        f'<li><a href="#{one["name"]}">{html.escape(_titled(one))}</a></li>' for one in collected
    )
    sections = "".join(_section(one, pictures.get(one["name"], [])) for one in collected)
    scaled = any(one["quick"] for one in collected)
    warning = (
        "<p><strong>Scaled-down runs: nothing here is to be compared with the papers.</strong></p>"
        if scaled
        else ""
    )
    path.write_text(
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>P4 PSPacer: {html.escape(title)}</title>
<style>{STYLE}</style>
<h1>{html.escape(title)}</h1>
<p class="soft">Each figure is the median over its seeds, with the smallest and the largest in
brackets where they differ; the published one stands below it. docs/experiments.md says how the runs
are made. {html.escape(made_by)}</p>
{GLOSSARY}{warning}{_claims(collected)}<nav><ul>{contents}</ul></nav>
{sections}
</html>
""",
        encoding="utf-8",
    )


GLOSSARY = """<details><summary>What the columns say</summary><dl>
<dt>goodput; 2nd half<dd>payload that arrived in order, over the run's seconds, or its last half
<dt>lost at the bottleneck, at the edge<dd>packets that the switches dropped, by their own counters
<dt>VB queue max<dd>largest queue in front of a virtual bottleneck that drains at the path's rate,
at the bottleneck's entrance, the packet that arrives included: 1,518 bytes are one full frame
<dt>ABW; max(Q)<dd>GtrcNET-1's bandwidth, and largest queue of the virtual bottleneck, of each
100 ms; at its own rate: the virtual bottleneck drains at the bandwidth of the window before
<dt>switch's RTT off the kernel's; in flight<dd>what the edge switch sees of a flow it
follows, beside the sender's TCP_INFO twice a second: the median distance of their ratio from 1
<dt>share; Jain's index<dd>1 (100 %) where all flows get the same, 1/n where one has all
<dt>done in time; last one done<dd>of transfers: how many ended within the run, and when the
last did
</dl></details>
"""


def _claims(collected: Sequence[dict[str, Any]]) -> str:
    """Return what was promised, with the worst figure found: empty where nothing was."""
    lines = "".join(
        f'<tr><th scope="row"><a href="#{one["name"]}">{html.escape(one["name"])}</a></th>'
        f'<td class="group">{html.escape(claim["claim"])}</td>'
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
    return f"{of}: {one['title']}" if of else f"{one['title']} (past the papers)"


def _section(one: dict[str, Any], pictures: Sequence[Picture]) -> str:
    body = _virtual_table(one) if "virtual" in one else _table(one)
    drawn = "".join(
        f'<h3>{html.escape(title)}</h3><img alt="{html.escape(title)}" '
        f'src="data:image/png;base64,{base64.b64encode(content).decode()}">'
        for title, content in pictures
    )
    said = "".join(f"<p>{html.escape(text)}</p>" for text in one["sentences"])
    source = f'<p class="soft">{html.escape(one["source"])}</p>' if one["source"] else ""
    return (
        f'<section id="{one["name"]}"><h2>{html.escape(_titled(one))}</h2>{source}'
        f'<div class="wide">{body}</div>{said}{drawn}{_commands(one)}</section>'
    )


def _table(one: dict[str, Any]) -> str:
    metrics = one["metrics"]
    head = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in metrics.values())
    lines = []
    last = None
    for row in one["rows"]:
        group = row["row"] if row["row"] != last else ""
        last = row["row"]
        title = f'<th scope="row">{html.escape(group)}</th>'
        title += f'<td class="group">{html.escape(row["column"])}</td>'
        if row["skipped"] is not None:
            why = html.escape(row["skipped"])
            cells = f'<td class="skipped" colspan="{len(metrics)}">{why}</td>'
        else:
            cells = "".join(_cell(name, row) for name in metrics)
        mark = ' class="paced"' if row["column"].startswith("paced") else ""
        lines.append(f"<tr{mark}>{title}{cells}</tr>")
    return (
        f"<table><thead><tr><td></td><td></td>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _cell(name: str, row: dict[str, Any]) -> str:
    text = html.escape(shown(name, row["values"].get(name)))
    if name in row["published"]:
        digits = METRICS[name].digits if row["published"][name] % 1 else 0
        text += f'<br><span class="published">{row["published"][name]:,.{digits}f}</span>'
    return f"<td>{text}</td>"


def _virtual_table(one: dict[str, Any]) -> str:
    """Return Tables 2 to 4: `tests/accuracy` has made the rows."""
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
