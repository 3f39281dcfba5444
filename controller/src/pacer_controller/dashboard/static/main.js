// The page: the shown switch, the incoming data, and their place on the page.

import { setUpForm } from "./add.js";
import { BottleneckCard } from "./bottleneck.js";
import { quantile } from "./charts.js";
import { ClassCard } from "./classes.js";
import { attribute, h, Keyed, put } from "./dom.js";
import * as format from "./format.js";
import { Growth, RecentBuckets } from "./history.js";
import { BY_PROGRAM, NO_LOSS, PortCard } from "./ports.js";
import { at, Follower, hasToken, Problem, request, setToken } from "./server.js";
import { endTraces, setUpTraces } from "./traces.js";

const CARDS = 24;
const RESOURCES_MS = 10000;
const LINK = {
  connecting: "Connecting", live: "Live", polling: "Live, by polling",
  away: "Controller away, trying again", token: "Token wanted", error: "Switch cannot be read",
};

const find = (id) => document.getElementById(id);

// ---- colours -------------------------------------------------------------------------------

const THEMES = ["automatic", "light", "dark"];

function showTheme(theme) {
  if (theme === "automatic") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  attribute(find("theme"), "title", `Colours: ${theme}`);
  attribute(find("theme"), "aria-label", `Colours: ${theme}`);
}

function setUpTheme() {
  let theme = THEMES.includes(localStorage.getItem("pacer-theme"))
    ? localStorage.getItem("pacer-theme") : "automatic";
  showTheme(theme);
  find("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem("pacer-theme", theme);
    showTheme(theme);
  });
}

// ---- one switch ----------------------------------------------------------------------------

/** Everything shown of one switch. */
class SwitchPage {
  constructor(name) {
    this.name = name;
    this.growth = new Growth();
    this.late = new RecentBuckets();
    this.states = new Map();
    this.shown = CARDS;
    this.last = null;
    for (const id of ["classes", "ports", "bottlenecks", "summary"]) find(id).replaceChildren();
    find("filter").value = "";
    put(find("empty-switch"), name);
    this.classes = new Keyed(find("classes"), (item) => new ClassCard(item));
    this.ports = new Keyed(find("ports"), (item) => new PortCard(item));
    this.bottlenecks = new Keyed(find("bottlenecks"), (item) => new BottleneckCard(item));
    this.tiles = new Map();
    this.past = new Map();
    this.timer = setInterval(() => this.readResources(), RESOURCES_MS);
    this.readHistory();
  }

  /** Reads the rates of the minute before, for charts that show it at once. */
  async readHistory() {
    try {
      const now = Date.now();
      const [{ classes }] = await request("GET", at("switches", this.name, "stats", "history"));
      for (const { kind, name, points } of classes) {
        const past = points.map(([ageS, ...v]) => ({ t: now - ageS * 1000, v }));
        this.past.set(`${kind} ${name}`, past);
      }
      // If statistics came first, there are cards already. Their keys depend on the rate, too.
      for (const { owner, history } of this.classes.views.values()) {
        if (owner) history.seed(this.past.get(`${owner.kind} ${owner.name}`) ?? []);
      }
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
    }
  }

  close() {
    clearInterval(this.timer);
  }

  /** Reads the states of resources, which statistics do not have: applied, pending or failed. */
  async readResources() {
    // The program of a switch that measures has no classes and flows.
    if (!this.last?.classes.length) return;
    try {
      for (const [kind, plural] of [["class", "classes"], ["flow", "flows"]]) {
        const [body] = await request("GET", at("switches", this.name, plural));
        for (const view of body[plural]) {
          this.states.set(`${kind} ${view.name}`, view);
        }
      }
    } catch (error) {
      // The stream reports the errors of the controller or the switch.
      if (!(error instanceof Problem)) throw error;
    }
  }

  show(statistics) {
    const t = Date.now();
    const clock = (statistics.now_ns ?? t * 1e6) / 1e6;
    // Whether resources are applied depends on the switch's state.
    const first = this.last?.state !== statistics.state;
    this.last = statistics;
    if (first) this.readResources();
    const lines = statistics.ports.map((port) => port.line_rate_bps ?? 0);
    const lineBps = Math.max(0, ...lines) || null;
    this.showClasses(statistics, t, clock, lineBps);
    this.showBottlenecks(statistics, t);
    this.showPorts(statistics, t, clock);
    this.showSummary(statistics, t, clock);
    const away = statistics.state !== "connected";
    const condition = statistics.reachable ? statistics.state : "unreachable";
    const why = statistics.last_error ? ` (${statistics.last_error})` : "";
    document.body.classList.toggle("away", away);
    notice(away ? `Switch ${this.name} is ${condition}${why}: changes are kept, and applied when `
      + "it is back." : null);
  }

  showClasses(statistics, t, clock, lineBps) {
    const wanted = find("filter").value.trim().toLowerCase();
    const named = statistics.classes.filter((row) => row.name || row.flow);
    // Packets of no class are worth a card only where there are any.
    const rest = statistics.classes.filter((row) => !row.name && !row.flow
      && (row.achieved_bps > 0 || this.classes.views.has("unclassified")));
    const all = [...named.sort(byName), ...rest];
    const matching = all.filter((row) => nameOf(row).toLowerCase().includes(wanted));
    const items = matching.slice(0, this.shown).map((row) => {
      const key = row.flow ? `flow ${row.flow}` : row.name ? `class ${row.name}` : "unclassified";
      const cap = this.states.get(key)?.port;
      const portLine = statistics.ports.find(({ port }) => port === cap)?.line_rate_bps;
      // A rate comes or goes with the mode: then the card is another one.
      return [row.rate_bps || !row.name ? key : `${key} unpaced`,
        { switchName: this.name, row, t, clock, past: this.past.get(key), lineBps: portLine ?? lineBps,
          state: this.states.get(key) }];
    });
    this.classes.show(items);
    find("class-section").hidden = !statistics.classes.length;
    find("classes-empty").hidden = named.length > 0;
    find("filter").hidden = all.length <= CARDS && !wanted;
    put(find("classes-count"), String(named.length));
    const left = matching.length - items.length;
    find("more").hidden = left <= 0;
    put(find("more"), `Show ${Math.min(left, CARDS)} of ${left} more`);
  }

  showPorts(statistics, t, clock) {
    this.ports.show(statistics.ports.map((row) => [row.port, { row, t, clock }]));
    find("port-section").hidden = !statistics.ports.length;
    find("trace-section").hidden = !statistics.traffic_manager;
    put(find("ports-count"), String(statistics.ports.length));
  }

  showBottlenecks(statistics, t) {
    const rows = statistics.virtual_bottleneck ?? [];
    this.bottlenecks.show(rows.map((row) => [row.port, { switchName: this.name, row, t,
      nowNs: statistics.now_ns }]));
    find("bottleneck-section").hidden = !rows.length;
  }

  showSummary(statistics, t, clock) {
    // Of mode ipg the rate is the line's, nothing that is asked for. An idle class asks for nothing.
    const paced = statistics.classes.filter((row) => row.rate_bps && row.mode !== "ipg");
    const active = paced.filter((row) => row.achieved_bps);
    const sum = (rows, field) => rows.reduce((total, row) => total + (row[field] ?? 0), 0);
    const tiles = [];
    if (statistics.classes.length) {
      const [achieved, asked] = ["achieved_bps", "rate_bps"].map((field) => sum(active, field));
      tiles.push(["Share of target", asked ? format.percent(achieved / asked) : "–",
        asked ? `${format.rate(achieved)} of ${format.rate(asked)}, ${active.length} of `
          + `${paced.length} classes send` : "no class sends"]);
    }
    const stalledNs = statistics.traffic_manager?.polling?.stalled_ns;
    if (stalledNs !== undefined) {
      const share = (this.growth.perSecond("stalled", stalledNs, clock) ?? 0) / 1e9;
      tiles.push(["Stalled", format.percent(share),
        `of the time; ${format.time(stalledNs)} since start`, share > 0.01]);
    }
    const used = statistics.ports.filter((port) => port.line_rate_bps && port.tx_bps !== null)
      .map((port) => [port.tx_bps / port.line_rate_bps, port.port]).sort((a, b) => b[0] - a[0])[0];
    if (used) tiles.push(["Busiest line", format.percent(used[0]), `port ${used[1]}, out`]);
    if (statistics.drops || statistics.ports.some((port) => port.statistics)) {
      const drops = lossOf(statistics);
      const rate = this.growth.perSecond("drops", drops, clock);
      tiles.push(["Drops", `${format.count(rate ?? 0)}/s`, `${format.count(drops)} since start`,
        rate > 0]);
    } else tiles.push(["Drops", "–", "not known"]);
    const queues = (statistics.virtual_bottleneck ?? []).map((row) => row.vb_max_bytes);
    if (queues.length) {
      tiles.push(["Virtual bottleneck queue", format.bytes(Math.max(...queues)), "most ever"]);
    }
    tiles.push(["Lateness", ...this.lateness(statistics, t)]);
    this.showTiles(tiles);
  }

  lateness(statistics, t) {
    const all = [];
    for (const { statistics: port } of statistics.ports) {
      (port?.lateness?.buckets ?? []).forEach((n, i) => { all[i] = (all[i] ?? 0) + n; });
    }
    const { buckets, recent } = this.late.add(t, all);
    const [half, most] = [quantile(buckets, 0.5), quantile(buckets, 0.99)];
    if (half === null) return ["–", all.length ? "nothing sent yet" : "not known"];
    return [`< ${format.time(Math.max(1, most))}`,
      `99 %; median < ${format.time(Math.max(1, half))}, ${recent ? "last minute" : "since start"}`];
  }

  showTiles(tiles) {
    for (const [label, value, note, bad] of tiles) {
      let tile = this.tiles.get(label);
      if (!tile) {
        tile = { value: h("b"), note: h("small") };
        tile.element = h("div.tile", {}, h("span", {}, label), tile.value, tile.note);
        this.tiles.set(label, tile);
        find("summary").append(tile.element);
      }
      put(tile.value, value);
      put(tile.note, note);
      tile.value.classList.toggle("bad", Boolean(bad));
    }
  }
}

const nameOf = (row) => row.name ?? row.flow ?? "unclassified";
const byName = (a, b) => nameOf(a).localeCompare(nameOf(b), "en", { numeric: true });

/** Packets lost on a switch: in the program, at its ports, and before a port was known. */
function lossOf(statistics) {
  // A drop of the program is counted once: by the program where that says why, else by the port.
  const byProgram = Boolean(statistics.drops);
  const counted = (drops) => Object.entries(drops ?? {}).reduce((sum, [cause, n]) =>
    sum + (NO_LOSS.has(cause) || (byProgram && cause === BY_PROGRAM) ? 0 : n), 0);
  const program = Object.entries(statistics.drops ?? {}).reduce((sum, [cause, n]) =>
    sum + (NO_LOSS.has(cause) ? 0 : n.packets), 0);
  return program + counted(statistics.traffic_manager?.drops)
    + statistics.ports.reduce((sum, port) => sum + counted(port.statistics?.drops), 0);
}

// ---- the page ------------------------------------------------------------------------------

function notice(text) {
  find("notice").hidden = text === null;
  put(find("notice"), text ?? "");
}

let page = null;
let names = [];

const follower = new Follower((state, detail) => {
  attribute(find("link"), "data-state", state);
  attribute(find("link"), "title", detail ?? "");
  put(find("link-text"), LINK[state]);
  document.body.classList.toggle("stale", state !== "live" && state !== "polling");
  if (state === "error") notice(detail);
  if (state === "away") refreshSwitches();
  if (state === "token") askToken();
}, (statistics) => {
  if (page && statistics.switch === page.name) page.show(statistics);
});

function choose(name) {
  page?.close();
  endTraces();
  page = new SwitchPage(name);
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  showNames();
  follower.follow([name]);
}

function showNames() {
  find("switches").replaceChildren(...names.map((name) => {
    const button = h("button", { type: "button", "aria-pressed": String(name === page?.name) },
      name);
    button.addEventListener("click", () => choose(name));
    return button;
  }));
}

async function refreshSwitches() {
  try {
    const [{ switches }] = await request("GET", "/v1/switches");
    const found = switches.map(({ name }) => name);
    if (found.join() !== names.join()) {
      names = found;
      showNames();
    }
    return true;
  } catch (error) {
    if (error.status === 401) follower.onState("token", error.message);
    return false;
  }
}

function askToken() {
  find("token-form").hidden = false;
  find("token-unknown").hidden = !hasToken();
  find("token").focus();
}

async function start() {
  find("token-form").hidden = true;
  follower.onState("connecting");
  while (!(await refreshSwitches())) {
    if (find("link").dataset.state === "token") return;
    follower.onState("away");
    await new Promise((resolve) => { setTimeout(resolve, 1000); });
  }
  request("GET", "/healthz").then(([{ version }]) => put(find("version"), `pacer ${version}`),
    () => {});
  const asked = decodeURIComponent(location.hash.slice(1));
  if (names.length) choose(names.includes(asked) ? asked : names[0]);
  else {
    notice("This controller has no switches yet: pacer switch add s1 address HOST:PORT");
    setTimeout(start, 2000);
  }
}

setUpTheme();
setUpForm(() => page.name);
setUpTraces(() => page.name);
find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(find("token").value.trim());
  start();
});
find("filter").addEventListener("input", () => { if (page?.last) page.show(page.last); });
find("more").addEventListener("click", () => {
  page.shown += CARDS;
  if (page.last) page.show(page.last);
});
setInterval(refreshSwitches, 15000);
start();
