// A port: the use of its line, its losses, and the lateness and spacing of its frames.

import { Histogram, quantile } from "./charts.js";
import { attribute, h, put } from "./dom.js";
import * as format from "./format.js";
import { Growth, RecentBuckets } from "./history.js";
import { QueueTable } from "./queues.js";

/** Drops that are no loss: decisions about a copy, and PAUSE frames. */
export const NO_LOSS = new Set(["egress-drop", "empty-group", "gap-frame", "pause-frame", "pruned",
  "same-port"]);

/** The port's causes for drops by the program; the program itself counts their reasons. */
export const BY_PROGRAM = "ingress-drop";

function meter(label) {
  const bar = h("i");
  const text = h("span");
  const track = h("div.track", {}, bar);
  const element = h("div.use", { role: "meter", "aria-label": label, "aria-valuemin": 0,
    "aria-valuemax": 100 }, h("span.use-label", {}, label), track, text);
  return { element, bar, text, track };
}

function panel(title, histogram) {
  const note = h("span.muted");
  const element = h("div.panel", {}, h("h4", {}, title, note), histogram.element);
  return { element, note };
}

/** The card of one port. */
export class PortCard {
  constructor({ row }) {
    this.growth = new Growth();
    this.name = h("span.muted");
    this.up = h("span.chip");
    this.line = h("span.line");
    this.sent = meter("Out");
    this.received = meter("In");
    this.lateness = new Histogram({ label: `Lateness of port ${row.port}`, format: format.time,
      zero: "on time", zeroMark: "0" });
    this.latenessPanel = panel("Lateness", this.lateness);
    this.recentLateness = new RecentBuckets();
    this.gaps = new Histogram({ label: `Gaps of port ${row.port}`, format: format.time,
      zero: "none", zeroMark: "0" });
    this.gapsPanel = panel("Gaps between frames", this.gaps);
    this.recentGaps = new RecentBuckets();
    this.facts = h("dl.facts");
    this.queues = new QueueTable(row.port);
    this.element = h("article.card.port", { "data-port": row.port },
      h("header", {}, h("h3", {}, `Port ${row.port}`), this.name, this.up, this.line),
      this.sent.element, this.received.element, this.facts,
      h("div.panels", {}, this.queues.element, this.latenessPanel.element,
        this.gapsPanel.element));
  }

  update({ row, t, clock }) {
    put(this.name, row.interface ?? "");
    this.up.hidden = row.up !== false;
    put(this.up, "down");
    put(this.line, row.line_rate_bps ? `${format.rate(row.line_rate_bps)} line` : "no line rate");
    this.use(this.sent, row.tx_bps, row.line_rate_bps);
    this.use(this.received, row.rx_bps, row.line_rate_bps);
    const statistics = row.statistics;
    this.showFacts(row, statistics, clock);
    this.queues.update(statistics?.queues, row.egress_queues?.scheduler, t, clock);
    this.histogram(this.latenessPanel, this.lateness, this.recentLateness, statistics?.lateness, t,
      (late) => late.max_ns ? `, most ${format.time(late.max_ns)}` : "");
    this.histogram(this.gapsPanel, this.gaps, this.recentGaps, statistics?.gaps, t, () => "");
  }

  use(place, bps, lineBps) {
    const share = lineBps && bps !== null ? Math.min(1, bps / lineBps) : null;
    place.bar.style.width = `${(share ?? 0) * 100}%`;
    place.track.classList.toggle("unknown", share === null);
    put(place.text, share === null ? format.rate(bps)
      : `${format.rate(bps)} · ${format.percent(share)}`);
    attribute(place.element, "aria-valuenow", Math.round((share ?? 0) * 100));
    attribute(place.element, "aria-valuetext", place.text.textContent);
  }

  showFacts(row, statistics, clock) {
    const facts = [statistics?.queues?.length
      ? ["Waiting in queues", format.bytes(statistics.fifo_backlog_bytes)]
      : ["FIFO", statistics ? `${format.bytes(statistics.fifo_backlog_bytes)} of `
        + format.bytes(row.fifo_bytes) : format.bytes(row.fifo_bytes)]];
    if (statistics?.paced_backlog_bytes !== undefined) {
      facts.push(["Paced queue", format.bytes(statistics.paced_backlog_bytes)]);
    }
    if (statistics?.gap_frames) facts.push(["PAUSE frames sent", format.count(statistics.gap_frames)]);
    if (row.delay_ns) facts.push(["Delay", format.time(row.delay_ns)]);
    const drops = Object.entries(statistics?.drops ?? {})
      .filter(([cause, n]) => n > 0 && !NO_LOSS.has(cause));
    for (const [cause, n] of drops) {
      const rate = this.growth.perSecond(cause, n, clock);
      facts.push([cause === BY_PROGRAM ? "Dropped by the program" : `Lost: ${cause}`,
        format.count(n) + (rate ? ` (${format.count(rate)}/s)` : ""), rate > 0]);
      if (cause === "oversize") facts.push(["Why oversize", "a larger MTU at the sender, or an offload that the port does not take: ethtool -K IF tso off gso off gro off"]);
    }
    if (statistics && !drops.length) facts.push(["Lost", "0"]);
    const key = facts.map(([name]) => name).join();
    if (key !== this.factsKey) {
      this.factsKey = key;
      this.facts.replaceChildren(...facts.map(([name]) =>
        h("div", {}, h("dt", {}, name), h("dd"))));
    }
    facts.forEach(([, value, bad], i) => {
      const place = this.facts.children[i].lastElementChild;
      put(place, value);
      place.classList.toggle("bad", Boolean(bad));
    });
  }

  histogram(place, chart, recent, measured, t, more) {
    place.element.hidden = !measured?.buckets?.some((n) => n > 0);
    if (place.element.hidden) return;
    const { buckets, recent: isRecent } = recent.add(t, measured.buckets);
    const summary = `half under ${bound(buckets, 0.5)}, 99 % under ${bound(buckets, 0.99)}`
      + more(measured);
    put(place.note, `${isRecent ? "last minute" : "since start"}: ${summary}`);
    chart.update(buckets, summary);
  }
}

function bound(buckets, share) {
  const value = quantile(buckets, share);
  return value ? format.time(value) : "1\u202fns";
}
