// A class: its target, its achieved rate, and the control that changes the target.

import { TimeChart } from "./charts.js";
import { attribute, h, put } from "./dom.js";
import * as format from "./format.js";
import { Growth, History } from "./history.js";
import { deleteOwner, Problem, setRate } from "./server.js";

const LOWEST_BPS = 8000;
const DECADES = 4; // the slider spans 1:10,000, or more where a lower rate is asked for
const STEPS = 800;
const LIVE_MS = 150; // while it is dragged, a change is sent at most this often
const IDLE_MS = 10000; // a class that has sent nothing for so long is folded
const HOLD_MS = 2500; // the controller's word counts again so long after our last change

/** The scale of a slider: logarithmic, up to the line rate. */
class Scale {
  constructor(top, bps) {
    this.top = top;
    const low = Math.min(top / 10 ** DECADES, 10 ** Math.floor(Math.log10(bps)));
    this.bottom = Math.max(LOWEST_BPS, low);
  }

  position(bps) {
    const share = Math.log(bps / this.bottom) / Math.log(this.top / this.bottom);
    return Math.round(STEPS * Math.min(1, Math.max(0, share)));
  }

  /** The rate at a position, to three digits, since a slider is not more exact. */
  rate(position) {
    if (position >= STEPS) return this.top;
    const exact = this.bottom * (this.top / this.bottom) ** (position / STEPS);
    const power = 10 ** (Math.floor(Math.log10(exact)) - 2);
    return Math.max(LOWEST_BPS, Math.round(Math.round(exact / power) * power));
  }
}

/** Slider and text field of a rate. */
class RateControl {
  constructor(switchName, owner) {
    Object.assign(this, { switchName, owner });
    const what = `${owner.kind} ${owner.name}`;
    this.slider = h("input", { type: "range", min: 0, max: STEPS, step: 1,
      "aria-label": `Rate of ${what}` });
    this.text = h("input.rate-text", { type: "text", inputmode: "text", spellcheck: "false",
      autocomplete: "off", "aria-label": `Exact rate of ${what}`, size: 10 });
    this.low = h("span");
    this.high = h("span");
    this.message = h("p.message", { role: "alert", hidden: "" });
    this.element = h("div.control", {},
      h("div.control-row", {}, h("div.slider", {}, this.slider,
        h("div.slider-ends", {}, this.low, this.high)), this.text), this.message);
    this.rateBps = null;
    this.heldUntil = 0;
    this.sending = false;
    this.wanted = null;
    this.lastSent = 0;
    this.slider.addEventListener("input", () => {
      const bps = this.scale.rate(Number(this.slider.value));
      this.text.value = format.rateText(bps);
      this.describe(bps);
      this.want(this.text.value);
    });
    this.slider.addEventListener("change", () => this.want(this.text.value, true));
    this.text.addEventListener("change", () => this.fromText());
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.reset();
    });
  }

  describe(bps) {
    attribute(this.slider, "aria-valuetext", format.rate(bps));
    this.slider.style.setProperty("--share", `${(100 * Number(this.slider.value)) / STEPS}%`);
  }

  fromText() {
    const bps = format.readRate(this.text.value);
    if (bps) {
      this.slider.value = this.scale.position(bps);
      this.describe(bps);
    }
    this.want(this.text.value.trim(), true);
  }

  reset() {
    this.heldUntil = 0;
    this.wanted = null;
    this.tell(null);
    this.show(this.rateBps, true);
  }

  /** Sends the newest requested rate, one at a time; older ones are never sent. */
  async want(rate, now = false) {
    this.wanted = rate;
    this.heldUntil = performance.now() + HOLD_MS;
    if (this.sending) return;
    this.sending = true;
    try {
      while (this.wanted !== null) {
        const wait = now ? 0 : this.lastSent + LIVE_MS - performance.now();
        if (wait > 0) await new Promise((resolve) => { setTimeout(resolve, wait); });
        const sent = this.wanted;
        this.wanted = null;
        if (sent === null) break;
        this.lastSent = performance.now();
        try {
          const view = await setRate(this.switchName, this.owner, sent);
          this.rateBps = view.rate_bps;
          this.tell(view.state === "applied" ? null : view.state_reason ?? view.state);
        } catch (error) {
          if (!(error instanceof Problem)) throw error;
          this.tell(error.advice);
          // The slider goes back to the rate that holds; a text stays, to be corrected.
          if (error.status && this.wanted === null && this.rateBps) {
            this.slider.value = this.scale.position(this.rateBps);
            this.describe(this.rateBps);
          }
        }
        this.heldUntil = performance.now() + HOLD_MS;
      }
    } finally {
      this.sending = false;
    }
  }

  tell(text) {
    this.message.hidden = text === null;
    put(this.message, text ?? "");
  }

  /** Shows the controller's rate, unless the user is changing it. */
  show(bps, force = false) {
    if (!bps || !this.scale) return;
    this.rateBps = bps;
    const held = this.sending || performance.now() < this.heldUntil;
    if (held && !force) return;
    if (document.activeElement !== this.text || force) this.text.value = format.rateText(bps);
    this.slider.value = this.scale.position(bps);
    this.describe(bps);
  }

  /** Sets the ends of the scale; a rate beyond them widens it. */
  setTop(lineBps, bps) {
    const low = this.scale && bps < this.scale.bottom;
    if (!this.scale || low || (lineBps && lineBps !== this.scale.top)
        || (!lineBps && bps > this.scale.top)) {
      const top = lineBps ?? Math.min(1e11, 10 ** Math.ceil(Math.log10(bps * 2)));
      this.scale = new Scale(top, bps);
      put(this.low, format.rate(this.scale.bottom));
      put(this.high, lineBps ? `line ${format.rate(top)}` : format.rate(top));
      this.show(this.rateBps, true);
    }
  }
}

function fact(label, title) {
  const value = h("dd");
  return [value, h("div", title ? { title } : {}, h("dt", {}, label), value)];
}

/** The card of one class. */
export class ClassCard {
  constructor({ switchName, row, past }) {
    const owner = row.flow ? { kind: "flow", name: row.flow }
      : row.name ? { kind: "class", name: row.name } : null;
    this.history = new History();
    if (past) this.history.seed(past);
    this.growth = new Growth();
    this.owner = owner;
    this.opened = false;
    this.mode = h("span.chip");
    this.state = h("span.chip.bad", { hidden: "" });
    this.below = h("p.below", { hidden: "" });
    this.number = h("span.number");
    this.unit = h("span.unit");
    this.target = h(row.rate_bps ? "span.target" : "span.target.muted");
    this.chart = new TimeChart({
      label: `Rate of ${owner ? `${owner.kind} ${owner.name}` : "unclassified packets"}`,
      format: format.rate,
      series: [{ name: "achieved", kind: "area" }, { name: "target", kind: "target" }],
    });
    // Of mode ipg the rate is the line's, nothing to be aimed at.
    this.control = owner && row.rate_bps && row.mode !== "ipg"
      ? new RateControl(switchName, owner) : null;
    this.unfold = h("button.link", { type: "button", hidden: "" }, "Chart");
    this.unfold.addEventListener("click", () => { this.opened = true; this.fold(); });
    this.remove = owner ? h("button.link", { type: "button",
      "aria-label": `Delete ${owner.kind} ${owner.name}` }, "Delete") : null;
    this.remove?.addEventListener("click", () => this.delete(switchName));
    let drops, queue, tokens, packets;
    [this.drops, drops] = fact("Drops", "Packets lost because the class's queue was full, or red");
    [this.queue, queue] = fact("Queue", "Bytes held until their departure time");
    [this.tokens, tokens] = fact("Gap tokens owed",
      "How far the class's clock is ahead: bytes of gap at line rate, and time");
    [this.packets, packets] = fact("Packets");
    this.element = h("article.card.class", owner ? { "data-class": owner.name } : {},
      h("header", {}, h("h3", {}, owner ? owner.name : "unclassified"), this.mode, this.state,
        h("span.space"), this.unfold, this.remove),
      h("div.headline", {}, this.number, this.unit, this.target), this.below,
      this.chart.element, this.control ? this.control.element : null,
      h("dl.facts", {}, drops, queue, tokens, packets));
  }

  /** Deletes the class with its flows, or the flow, once it is asked for twice. */
  async delete(switchName) {
    if (put(this.remove, "Delete?") ) {
      setTimeout(() => put(this.remove, "Delete"), HOLD_MS);
      return;
    }
    try {
      await deleteOwner(switchName, this.owner);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.below.hidden = false;
      put(this.below, error.advice);
    }
  }

  /** Shows a class that has sent nothing for a while without chart and facts. */
  fold() {
    const { points } = this.history;
    const idle = points.length > 1 && points.at(-1).t - points[0].t > IDLE_MS
      && points.every(({ v }) => !v[0]);
    this.element.classList.toggle("idle", idle && !this.opened);
    this.unfold.hidden = !idle || this.opened;
  }

  update({ row, t, clock, lineBps, state }) {
    const achieved = row.achieved_bps ?? null;
    // The first sample of a stream has no rate; the minute before it has.
    if (achieved !== null) this.history.add(t, [achieved, row.rate_bps]);
    this.fold();
    const [number, unit] = achieved === null ? ["–", ""] : format.rateParts(achieved);
    put(this.number, number);
    put(this.unit, unit);
    put(this.target, goal(row));
    put(this.mode, row.flow ? `${row.mode}, own rate` : row.mode);
    this.state.hidden = !state || state.state === "applied";
    if (!this.state.hidden) {
      put(this.state, state.state);
      attribute(this.state, "title", state.state_reason ?? "");
    }
    const below = whyBelow(row);
    this.below.hidden = !below;
    put(this.below, below);
    const summary = row.rate_bps ? `${format.rate(achieved)} of ${format.rate(row.rate_bps)}`
      : format.rate(achieved);
    this.chart.update(this.history.points, t, summary);
    this.control?.setTop(lineBps, row.rate_bps);
    this.control?.show(row.rate_bps);
    this.facts(row, clock);
  }

  facts(row, clock) {
    const dropped = lost(row);
    const rate = dropped === null ? null : this.growth.perSecond("drops", dropped, clock);
    put(this.drops, format.count(dropped) + (rate ? ` (${format.count(rate)}/s)` : ""));
    this.drops.classList.toggle("bad", Boolean(rate));
    put(this.queue, row.held_packets
      ? `${format.bytes(row.backlog_bytes)} in ${format.count(row.held_packets)} packet${row.held_packets === 1 ? "" : "s"}`
      : format.bytes(row.backlog_bytes));
    const owed = row.gap_tokens_bytes !== null && row.gap_tokens_bytes !== undefined;
    put(this.tokens, row.owed_ns === null || row.owed_ns === undefined ? "–"
      : owed ? `${format.bytes(row.gap_tokens_bytes)} · ${format.time(row.owed_ns)}`
        : format.time(row.owed_ns));
    const packets = row.accepted ? this.growth.perSecond("packets", row.accepted.packets, clock) : null;
    put(this.packets, packets === null ? format.count(row.accepted?.packets)
      : `${format.count(packets)}/s`);
  }
}

/** Packets a class lost; null where the switch cannot say. */
function lost(row) {
  if (!row.limit_dropped && !row.red_dropped) return null;
  return (row.limit_dropped?.packets ?? 0) + (row.red_dropped?.packets ?? 0);
}

/** The rate that a class's achieved rate is compared with. */
function goal(row) {
  if (row.mode === "ipg") return `fixed gaps at ${format.rate(row.rate_bps)}`;
  if (row.rate_bps) return `of ${format.rate(row.rate_bps)}`;
  return row.mode === "unpaced" ? "takes what the paced classes leave" : "each flow by its window / RTT";
}

/** Why a class is below its rate, in a few words; empty where it is at it. */
function whyBelow(row) {
  if (!row.below_rate) return "";
  const { reason, short_percent: percent, stalled_ms: stalledMs } = row.below_rate;
  const texts = {
    "no-demand": "no demand for a part of the time",
    limit: "packets lost at its limit",
    line: "the line is full",
    stalled: `the machine stalled the switch for ${stalledMs.toFixed(0)} ms`,
  };
  return `${Math.round(percent)} % below its rate: ${texts[reason] ?? reason}`;
}
