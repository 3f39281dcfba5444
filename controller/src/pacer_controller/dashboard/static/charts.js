// Two charts, drawn as SVG: a value over the last minute, and a histogram.

import { attribute, h, svg } from "./dom.js";

/** The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `value`. */
export function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]) {
    if (value <= step * power * 1.000001) return step * power;
  }
  return 10 * power;
}

/** The same for bytes, whose units are powers of 1024. */
export function niceBytes(value) {
  const unit = 1024 ** Math.max(1, Math.floor(Math.log2(Math.max(1, value)) / 10));
  return niceTop(value / unit) * unit;
}

const HEIGHT = 118;
const TOP = 8;
const BOTTOM = 18;
const LEFT = 2;

/**
 * Lines over the last `windowS` seconds.
 *
 * series: [{name, kind: "area" | "line" | "target", format}]; points: [{t, v: [..]}], t in ms,
 * oldest first; a null, or `breakMs` without a point, breaks the line.
 */
export class TimeChart {
  constructor({ label, series, format, nice = niceTop, windowS = 60, breakMs = 3500 }) {
    Object.assign(this, { label, series, format, nice, windowS, breakMs });
    this.points = [];
    this.width = 0;
    this.now = 0;
    this.top = 1;
    this.area = svg("path.chart-area");
    this.lines = series.map(({ kind }) => svg(`path.chart-line.${kind}`));
    this.grid = svg("g.chart-grid");
    this.cross = svg("line.chart-cross", { y1: TOP, y2: HEIGHT - BOTTOM });
    this.dots = series.map(({ kind }) => svg(`circle.chart-dot.${kind}`, { r: 3.5 }));
    this.labels = svg("g.chart-labels");
    this.canvas = svg("svg", { role: "img", height: HEIGHT }, this.grid, this.area, ...this.lines,
      this.labels, this.cross, ...this.dots);
    this.tip = h("div.tip", { hidden: "" });
    this.element = h("div.chart", {}, this.canvas, this.tip);
    this.element.addEventListener("pointermove", (event) => this.point(event));
    this.element.addEventListener("pointerdown", (event) => this.point(event));
    this.element.addEventListener("pointerleave", () => this.point(null));
    this.pointed = null;
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  resize() {
    const width = Math.floor(this.element.clientWidth);
    if (width > 0 && width !== this.width) {
      this.width = width;
      attribute(this.canvas, "width", width);
      attribute(this.canvas, "viewBox", `0 0 ${width} ${HEIGHT}`);
      this.draw();
    }
  }

  x(t) {
    return LEFT + (this.width - 2 * LEFT) * (1 - (this.now - t) / (this.windowS * 1000));
  }

  y(value) {
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * Math.min(1, value / this.top);
  }

  update(points, now, summary) {
    this.points = points;
    this.now = now;
    attribute(this.canvas, "aria-label", `${this.label}: ${summary}`);
    this.draw();
  }

  draw() {
    if (!this.width) return;
    const from = this.now - this.windowS * 1000;
    const shown = this.points.filter(({ t }) => t >= from - this.breakMs);
    const most = Math.max(0, ...shown.flatMap(({ v }) => v.map((value) => value ?? 0)));
    const wanted = this.nice(most * 1.08);
    // The scale follows up at once, and down only when the lines have become small.
    if (wanted > this.top || wanted < this.top * 0.6) this.top = wanted;
    this.drawGrid();
    this.series.forEach(({ kind }, index) => {
      const runs = this.runs(shown, index);
      attribute(this.lines[index], "d", runs.map((run) => this.path(run, kind)).join(""));
      if (kind === "area") {
        const base = HEIGHT - BOTTOM;
        attribute(this.area, "d", runs.map((run) =>
          `${this.path(run, kind)}L${run.at(-1)[0]} ${base}L${run[0][0]} ${base}Z`).join(""));
      }
    });
    this.drawPointed();
  }

  runs(points, index) {
    const runs = [];
    let last = -Infinity;
    for (const { t, v } of points) {
      const value = v[index];
      if (value === null || value === undefined) {
        last = -Infinity;
        continue;
      }
      const at = [Number(this.x(t).toFixed(1)), Number(this.y(value).toFixed(1))];
      if (t - last > this.breakMs) runs.push([at]);
      else runs.at(-1).push(at);
      last = t;
    }
    return runs;
  }

  path(run, kind) {
    // A target holds until it is changed: it is drawn in steps.
    return run.map(([x, y], i) => {
      // A point by itself is a dot: a line of no length with round ends.
      if (i === 0) return run.length === 1 ? `M${x} ${y}h0` : `M${x} ${y}`;
      return kind === "target" ? `H${x}V${y}` : `L${x} ${y}`;
    }).join("");
  }

  drawGrid() {
    const key = `${this.top} ${this.width}`;
    if (key === this.gridKey) return;
    this.gridKey = key;
    const parts = [];
    const labels = [];
    for (const share of [0, 0.5, 1]) {
      const y = Math.round(this.y(this.top * share)) + 0.5;
      parts.push(svg("line", { x1: 0, x2: this.width, y1: y, y2: y }));
      if (share > 0) labels.push(svg("text", { x: 2, y: y + 11 }, this.format(this.top * share)));
    }
    const base = HEIGHT - 4;
    labels.push(svg("text", { x: 2, y: base }, `${this.windowS} s ago`));
    labels.push(svg("text.end", { x: this.width - 2, y: base }, "now"));
    this.grid.replaceChildren(...parts);
    this.labels.replaceChildren(...labels);
  }

  point(event) {
    this.pointed = event ? event.clientX - this.element.getBoundingClientRect().left : null;
    this.drawPointed();
  }

  drawPointed() {
    let nearest = null;
    if (this.pointed !== null) {
      const away = ({ t }) => Math.abs(this.x(t) - this.pointed);
      for (const point of this.points) {
        if (this.x(point.t) >= 0 && (!nearest || away(point) <= away(nearest))) nearest = point;
      }
    }
    const shown = nearest !== null;
    this.cross.style.display = shown ? "" : "none";
    this.tip.hidden = !shown;
    this.dots.forEach((dot, i) => {
      const value = shown ? nearest.v[i] : null;
      dot.style.display = value === null || value === undefined ? "none" : "";
      if (dot.style.display === "") {
        attribute(dot, "cx", this.x(nearest.t));
        attribute(dot, "cy", this.y(value));
      }
    });
    if (!shown) return;
    const x = this.x(nearest.t);
    attribute(this.cross, "x1", x);
    attribute(this.cross, "x2", x);
    const ago = Math.max(0, Math.round((this.now - nearest.t) / 1000));
    this.tip.replaceChildren(
      h("span.muted", {}, ago ? `${ago} s ago` : "now"),
      ...this.series.map(({ name, kind }, i) =>
        h("span", {}, h(`i.key.${kind}`), `${name} `, h("b", {}, this.format(nearest.v[i])))));
    const half = this.tip.offsetWidth / 2;
    this.tip.style.left = `${Math.min(Math.max(x, half), this.width - half)}px`;
  }
}

/**
 * A histogram of times in powers of two: bucket 0 is 0 ns, bucket i from 2^(i-1) to 2^i ns.
 *
 * Heights are logarithmic, so that rare outliers stay visible.
 */
export class Histogram {
  constructor({ label, format, zero, zeroMark, floor = 10, least = 22 }) {
    Object.assign(this, { label, format, zero, zeroMark, floor, least });
    this.bars = h("div.bars");
    this.axis = h("div.bars-axis");
    this.element = h("div.histogram", { role: "img" }, this.bars, this.axis);
  }

  /** Buckets below 2^floor ns are one; trailing empty ones are left out, down to 2^least. */
  update(buckets, summary) {
    attribute(this.element, "aria-label", `${this.label}: ${summary}`);
    const low = buckets.slice(1, this.floor + 1).reduce((sum, n) => sum + n, 0);
    const rows = [[this.zero, buckets[0] ?? 0], [`up to ${this.format(2 ** this.floor)}`, low]];
    const end = Math.max(buckets.length, this.least + 1);
    for (let i = this.floor + 1; i < end; i += 1) {
      rows.push([`${this.format(2 ** (i - 1))} to ${this.format(2 ** i)}`, buckets[i] ?? 0]);
    }
    const most = Math.max(1, ...rows.map(([, n]) => n));
    if (this.bars.childElementCount !== rows.length) {
      this.bars.replaceChildren(...rows.map(() => h("span", {}, h("i"))));
      this.drawAxis(rows.length, end);
    }
    rows.forEach(([name, n], i) => {
      const bar = this.bars.children[i];
      const height = n ? Math.max(5, (100 * Math.log10(1 + n)) / Math.log10(1 + most)) : 0;
      bar.firstElementChild.style.height = `${height}%`;
      attribute(bar, "title", `${name}: ${n.toLocaleString("en")}`);
      bar.classList.toggle("first", i === 0);
    });
  }

  drawAxis(rows, end) {
    const labels = [[0, this.zeroMark]];
    for (let i = this.floor; i < end; i += 1) {
      // 2^10 ns is a µs and 2^20 a ms, near enough to label an axis of powers of two.
      if (i % 10 === 0) {
        labels.push([i - this.floor + 2, { 10: "1 µs", 20: "1 ms", 30: "1 s" }[i] ?? ""]);
      }
    }
    this.axis.replaceChildren(...labels.map(([at, text]) => {
      const mark = h("span", {}, text);
      mark.style.left = `${(100 * at) / rows}%`;
      return mark;
    }));
  }
}

/** The value (upper end of its bucket, ns) below which a share of a histogram lies; null: empty. */
export function quantile(buckets, share) {
  const total = buckets.reduce((sum, n) => sum + n, 0);
  if (!total) return null;
  let seen = 0;
  for (let i = 0; i < buckets.length; i += 1) {
    seen += buckets[i];
    if (seen >= share * total) return i === 0 ? 0 : 2 ** i;
  }
  return null;
}

