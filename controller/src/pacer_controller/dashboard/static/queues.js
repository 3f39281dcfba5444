// The egress queues of a port: what waits, for how long packets waited, marks, and losses by cause.

import { quantile } from "./charts.js";
import { h, Keyed, put } from "./dom.js";
import * as format from "./format.js";
import { Growth, RecentBuckets } from "./history.js";

/** One queue: a row of numbers, and below it what was lost. */
class QueueRow {
  constructor({ queue }) {
    this.growth = new Growth();
    this.recent = new RecentBuckets();
    this.cells = ["waiting", "half", "most", "marked"].map((name) => h(`td.${name}`));
    this.lost = h("td.lost", { colspan: this.cells.length });
    this.losses = h("tr", {}, h("td"), this.lost);
    this.element = h("tbody", {},
      h("tr", {}, h("th", { scope: "row" }, String(queue.queue)), ...this.cells), this.losses);
  }

  update({ queue, t, clock }) {
    const { sojourn } = queue;
    const buckets = sojourn && this.recent.add(t, sojourn.buckets).buckets;
    const under = (share) => {
      const value = sojourn && quantile(buckets, share);
      return value === null ? "–" : format.time(Math.min(value, sojourn.max_ns));
    };
    const drops = Object.entries(queue.drops).filter(([, n]) => n > 0);
    let losing = false;
    const lost = drops.map(([cause, n]) => {
      const rate = this.growth.perSecond(cause, n, clock);
      losing ||= rate > 0;
      return `${format.count(n)} ${cause}${rate ? ` (${format.count(rate)}/s)` : ""}`;
    });
    const [waiting, half, most, marked] = this.cells;
    put(waiting, queue.backlog_packets === null ? "–" : queue.backlog_packets
      ? `${format.count(queue.backlog_packets)} · ${format.bytes(queue.backlog_bytes)}` : "0");
    put(half, under(0.5));
    put(most, under(0.99));
    put(marked, format.count(queue.marked_packets));
    put(this.lost, `Lost: ${lost.join(", ")}`);
    this.losses.hidden = !lost.length;
    this.lost.classList.toggle("bad", losing);
  }
}

/** The table of a port's queues, those that have had packets; highest first, as strict order is. */
export class QueueTable {
  constructor(port) {
    this.note = h("span.muted");
    const names = ["Queue", "Waiting", "Sojourn, half", "99 %", "Marked"];
    const head = h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name))));
    this.table = h("table", { "aria-label": `Egress queues of port ${port}` });
    this.rows = new Keyed(this.table, (item) => item ? new QueueRow(item)
      : { element: head, update() {} });
    this.element = h("div.panel.queues", { hidden: "" },
      h("h4", {}, "Egress queues", this.note), h("div.scroll", {}, this.table));
  }

  update(queues, scheduler, t, clock) {
    this.element.hidden = !queues?.length;
    if (this.element.hidden) return;
    const used = queues.filter((queue) => (queue.backlog_max_packets ?? queue.tx_packets) > 0
      || Object.values(queue.drops).some((n) => n > 0));
    const all = `${queues.length}${scheduler ? ` in order ${scheduler}` : ""}`;
    put(this.note, used.length < queues.length ? `${all}; ${used.length} had packets` : all);
    this.table.hidden = !used.length;
    this.rows.show([["head", null], ...used.toReversed().map((queue) =>
      [queue.queue, { queue, t, clock }])]);
  }
}
