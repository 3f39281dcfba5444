// The way of packets through the switch: as they come in, or of one that might come in.

import { h, put } from "./dom.js";
import { at, Problem, request, streamOf } from "./server.js";

const find = (id) => document.getElementById(id);
const MOST_SHOWN = 50;

let watching = null;

/** Sets the forms up; `switchName()` is the switch that is shown. */
export function setUpTraces(switchName) {
  find("watch-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (watching) {
      watching.abort();
      return;
    }
    const { match, count } = Object.fromEntries(new FormData(event.target));
    const query = new URLSearchParams({ count, ...(match ? { match } : {}) });
    find("traces").replaceChildren();
    watching = new AbortController();
    put(find("watch"), "Stop");
    await shown(async () => {
      const path = `${at("switches", switchName(), "traces")}?${query}`;
      for await (const [kind, data] of streamOf(path, watching.signal)) {
        const said = JSON.parse(data);
        if (kind === "error") throw new Problem(said.status, said.detail, said);
        show(said);
      }
    });
    watching = null;
    put(find("watch"), "Watch");
  });
  find("dry-run-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const { port, frame } = Object.fromEntries(new FormData(event.target));
    const body = { port: Number(port), frame: frame.replace(/[\s:]|0x/g, "") };
    find("traces").replaceChildren();
    await shown(async () => {
      show((await request("POST", at("switches", switchName(), "dry-run"), body))[0]);
    });
  });
}

/** Ends the watch, as its switch is no longer shown, and forgets its traces. */
export function endTraces() {
  watching?.abort();
  find("traces").replaceChildren();
  showMessage(null);
}

/** Runs a request, and shows its problem if it has one. */
async function shown(run) {
  showMessage(null);
  try {
    await run();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    showMessage(error.advice);
  }
}

function showMessage(text) {
  find("trace-message").hidden = text === null;
  put(find("trace-message"), text ?? "");
}

/** Adds a trace, which is open if it is the first. */
function show({ trace, skipped }) {
  const host = find("traces");
  const { packet_id: id = 0, ingress_port: port = 0, packet_size: bytes = 0 } = trace.input ?? {};
  const head = h("summary", {}, `Packet ${id}: ${bytes} bytes at port ${port}`,
    h("span.muted", {}, ` ${ends(trace.root ?? {}).join(", ")}`
      + `${skipped ? `; ${skipped} before it skipped` : ""}`));
  const element = h("details.trace", {}, head, tree(trace.root ?? {}));
  element.open = !host.childElementCount;
  host.append(element);
  if (host.childElementCount > MOST_SHOWN) host.firstElementChild.remove();
}

const EVENTS = new Set(["events", "fork"]);

/** Members that JSON leaves out as they are false or 0. */
const FALSE = {
  table_lookup: ({ hit = false }) => ({ hit }),
  condition: ({ holds = false }) => ({ holds }),
  read_queue: ({ port = 0, queue = 0, exists = false, packets = 0, bytes = 0, sojourn_ns = 0 }) => (
    { port, queue, exists, packets, bytes, sojourn_ns }),
  choose_queue: ({ queue = 0 }) => ({ queue }),
  enqueue: ({ qid = 0, enq_qdepth = 0, backlog_bytes = 0 }) => ({ qid, enq_qdepth, backlog_bytes }),
};

/** The ends of a branch, one for each copy of the packet. */
function ends(branch) {
  if (branch.fork) return (branch.fork.branches ?? []).flatMap(ends);
  return Object.keys(branch).filter((kind) => !EVENTS.has(kind)).map((kind) => words(kind, branch[kind]));
}

/** A branch as a list: its stages with their events, its end, and the branches that fork from it. */
function tree(branch) {
  const list = h("ul");
  let inner = list;
  for (const event of branch.events ?? []) {
    const [[kind, members]] = Object.entries(event);
    if (kind !== "pipeline_stage") {
      inner.append(h("li", {}, words(kind, { ...members, ...FALSE[kind]?.(members) })));
    } else if (members.direction === "ENTER") {
      inner = h("ul");
      list.append(h("li.stage", {}, members.stage_name ?? "", inner));
    } else {
      inner = list;
    }
  }
  if (!branch.fork) {
    list.append(...ends(branch).map((end) => h("li.end", {}, end)));
  }
  for (const copy of branch.fork?.branches ?? []) {
    list.append(h("li.copy", {}, `copy (${branch.fork.reason.toLowerCase()})`, tree(copy)));
  }
  return list;
}

/** An event in words: its kind, its text in the program, and the names and values of its members. */
function words(kind, { source_info: source, ...members }) {
  const said = Object.entries(members).map(([name, value]) => `${spaced(name)} ${plain(value)}`);
  if (source) {
    said.unshift(`${source.source_fragment ?? ""} (${source.filename ?? ""}:${source.line ?? 0})`);
  }
  return [spaced(kind), said.join(", ")].filter(Boolean).join(": ");
}

const spaced = (name) => name.replaceAll("_", " ");

function plain(value) {
  if (Array.isArray(value)) {
    return value.map((one) => `${one.name}=${one.value ?? ""}`).join(" ");
  }
  return typeof value === "object" ? `(${words("", value)})` : String(value);
}
