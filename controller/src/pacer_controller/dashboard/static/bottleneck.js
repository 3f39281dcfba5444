// The measurements of a switch with gtrcnet: the bandwidth, and the queue in front of a bottleneck
// that is not there.

import { niceBytes, TimeChart } from "./charts.js";
import { h, put } from "./dom.js";
import * as format from "./format.js";
import { History } from "./history.js";
import { at, Problem, request } from "./server.js";

/** The card of one measured port of one switch. */
export class BottleneckCard {
  constructor({ switchName, row }) {
    Object.assign(this, { switchName, port: row.port });
    const where = `${switchName} port ${row.port}`;
    this.rates = new History();
    this.queues = new History();
    this.number = h("span.number");
    this.unit = h("span.unit");
    this.target = h("span.target");
    this.chart = new TimeChart({ label: `Bandwidth at ${where}`, format: format.rate,
      series: [{ name: "measured", kind: "area" }, { name: "bottleneck", kind: "target" }] });
    this.queueChart = new TimeChart({ label: `Virtual queue at ${where}`, format: format.bytes,
      nice: niceBytes, breakMs: 15000, series: [{ name: "most queued", kind: "area" }] });
    this.most = h("span.muted");
    this.seenNs = null;
    this.asking = false;
    this.askAt = 0;
    this.element = h("article.card.bottleneck", { "data-bottleneck": where },
      h("header", {}, h("h3", {}, switchName), h("span.chip", {}, `port ${row.port}`)),
      h("div.headline", {}, this.number, this.unit, this.target), this.chart.element,
      h("h4", {}, "Queue in front of it", this.most), this.queueChart.element);
  }

  update({ row, t, nowNs }) {
    this.rates.add(t, [row.achieved_bps ?? null, row.bottleneck_bps]);
    const [number, unit] = row.achieved_bps === null || row.achieved_bps === undefined
      ? ["–", ""] : format.rateParts(row.achieved_bps);
    put(this.number, number);
    put(this.unit, unit);
    put(this.target, row.bottleneck_bps ? `of ${format.rate(row.bottleneck_bps)}` : "");
    this.chart.update(this.rates.points, t, `${number} ${unit}`);
    put(this.most, `most ever ${format.bytes(row.vb_max_bytes)}`);
    this.askWindows(t, nowNs);
  }

  /** Reads the largest queue of the windows of 100 ms since the last time. */
  async askWindows(t, nowNs) {
    const begin = performance.now();
    if (this.asking || !nowNs || begin < this.askAt) return;
    this.asking = true;
    // The newest window is still being filled; it is read again the next time.
    const from = Math.max(0, this.seenNs ?? nowNs - 1e9);
    try {
      const path = at("switches", this.switchName, "bandwidth");
      const [{ windows }] = await request("GET",
        `${path}?port=${this.port}&from_ns=${Math.floor(from)}`);
      this.queues.add(t, [Math.max(0, ...windows.vb_max_bytes)]);
      this.seenNs = nowNs;
      this.queueChart.update(this.queues.points, t, format.bytes(this.queues.last.v[0]));
    } catch (error) {
      // The stream of statistics reports the switch's error; here a missing point is enough.
      if (!(error instanceof Problem)) throw error;
    } finally {
      this.asking = false;
      // Registers are slow to read: at most a fifth of the time goes into it.
      this.askAt = performance.now() + 4 * (performance.now() - begin);
    }
  }
}
