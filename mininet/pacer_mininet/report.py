"""The demo's report: one HTML file that needs nothing else, on a phone or a wide screen."""

import base64
import html
from pathlib import Path
from typing import Any

from pacer_mininet.table import COLUMNS, heading, mbps, notes, row
from pacer_mininet.units import format_size

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
"""


def write(results: list[dict[str, Any]], picture: Path, path: Path) -> None:
    """Write the report of all runs; `picture` is the PNG file that goes into it."""
    runs = [result["run"] for result in results]
    # A column per run: so the table fits a narrow window, and what is compared stands side by side.
    head, *lines = zip(COLUMNS, *(row(run) for run in runs), strict=True)
    titles = _cells("th", head, runs, ' scope="col"')
    body = "".join(
        f'<tr><th scope="row">{html.escape(line[0])}</th>{_cells("td", line, runs)}</tr>'
        for line in lines
    )
    image = base64.b64encode(picture.read_bytes()).decode()
    described = "; ".join(
        f"{run['name']}: {mbps(run['goodput_bps'])} Mbit/s, {run['bottleneck_drops']} lost"
        for run in runs
    )
    paragraphs = "".join(f"<p>{html.escape(text)}</p>" for text in explanation(runs))
    small = "".join(f'<p class="soft">{html.escape(text)}</p>' for text in notes(runs))
    path.write_text(
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>TCP on a long fat network, paced by P4</title>
<style>{STYLE}</style>
<h1>TCP on a long fat network, paced by P4</h1>
<p class="soft">{html.escape(heading(runs))}</p>
<div class="wide"><table>
<thead><tr><td></td>{titles}</tr></thead>
<tbody>{body}</tbody>
</table></div>
{small}
<h2>Bandwidth at the entrance of the bottleneck</h2>
<img alt="{html.escape(described)}" src="data:image/png;base64,{image}">
<h2>Why these are not the published numbers</h2>
{paragraphs}
</html>
""",
        encoding="utf-8",
    )


def _cells(
    tag: str, line: tuple[str, ...], runs: list[dict[str, Any]], attributes: str = ""
) -> str:
    """Return the cells of a line of the table behind its label, each of its run's class."""
    return "".join(
        f'<{tag} class="{html.escape(run["name"])}"{attributes}>{html.escape(text)}</{tag}>'
        for run, text in zip(runs, line[1:], strict=True)
    )


def explanation(runs: list[dict[str, Any]]) -> list[str]:
    """Return, in plain sentences, what sets these numbers apart from the published ones."""
    first = runs[0]
    texts = [
        "The published runs were made some twenty years ago, on Linux of that time and a hardware "
        f"link emulator; these were made on Linux {first['kernel']} and software switches, and "
        f"last {first['seconds']} s. Goodput over the whole run holds the slow start, when nobody "
        "can fill the path yet: compare the second half.",
        "Unpaced, slow start doubles the window every round trip and sends what is new at once, "
        f"at the speed of the sender's own line. A FIFO of {format_size(first['fifo_bytes'])} "
        "overflows while the window is still a small part of what the path holds; from there the "
        "congestion control needs many round trips to grow again. When that happens, how many "
        "packets it costs and how fast the window comes back depend on the TCP: today's starts "
        "with ten segments, and finds and mends losses in other ways than that of the paper.",
        "Today's TBF is another one, too. It used to be woken by the tick of the system clock, "
        "and then sent at once what had gathered since the last tick; now a high-resolution timer "
        "wakes it for each packet, so that its bursts are at most the ten packets of its bucket. "
        "The VB queue in the table shows their size.",
    ]
    if first["mode"] == "lab":
        texts.append(
            "The lab's clock stands still while programs compute: there is no jitter of timers "
            "and no late process, for TBF as little as for the pacer. What TBF costs on a real "
            "machine, the run with REALTIME=1 shows. The same run gives the same numbers, to "
            "the bit, on every machine."
        )
    else:
        late = max(run["lateness_max_ns"]["s1"] for run in runs) / 1e6
        texts.append(
            f"This is a measurement on a shared machine: the edge switch was up to {late:.2f} ms "
            "late with a packet, and the next run will differ a little."
        )
    return texts
