// The connection to the controller: requests, the live stream, and reconnecting.

const INTERVAL_MS = 1000;
const RETRY_MS = 1000;
const SILENCE_MS = 15000; // the server says something at least every 10 s
const TOKEN = "pacer-token";

/** A problem the controller answered with (RFC 9457), or that it did not answer (status 0). */
export class Problem extends Error {
  constructor(status, detail, body = {}) {
    super(detail);
    this.status = status;
    this.body = body;
  }

  /** The text to show beside the field at fault: its message, or the whole detail. */
  get advice() {
    const [first] = this.body.errors ?? [];
    return first ? `${first.message}; want ${first.expected}` : this.message;
  }
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more };
}

async function problemOf(response) {
  const body = await response.json().catch(() => ({}));
  return new Problem(response.status, body.detail ?? `${response.status} ${response.statusText}`,
    body);
}

/** Makes a request; returns [body, etag]. */
export async function request(method, path, body = undefined, more = {}) {
  // The page shows the controller's memory, even while the store does not answer.
  const sent = body === undefined
    ? { "Cache-Control": "max-stale", ...more }
    : { ...more, "Content-Type": "application/json" };
  let response;
  let text;
  try {
    response = await fetch(path, { method, headers: headers(sent), cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body) });
    // It may go away between the head of its answer and the end of it.
    if (response.ok) text = await response.text();
  } catch {
    throw new Problem(0, "the controller does not answer");
  }
  if (!response.ok) throw await problemOf(response);
  return [text ? JSON.parse(text) : null, response.headers.get("ETag")];
}

export const at = (...parts) => `/v1/${parts.map(encodeURIComponent).join("/")}`;

/** Reads server-sent events from a response body: yields [event, data]. */
async function* events(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let kind = "message";
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    text += value;
    const lines = text.split(/\r\n|\n|\r/);
    text = lines.pop();
    for (const line of lines) {
      const [, name, content] = /^([^:]*):? ?(.*)$/.exec(line);
      if (line === "") {
        if (data.length) yield [kind, data.join("\n")];
        [kind, data] = ["message", []];
      } else if (name === "event") kind = content;
      else if (name === "data") data.push(content);
    }
  }
}

/** Opens a stream of server-sent events: yields [event, data]. `alive` is called as it sends. */
export async function* streamOf(path, signal, alive = () => {}) {
  let response;
  try {
    response = await fetch(path, { headers: headers({ Accept: "text/event-stream" }), signal,
      cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "the controller does not answer");
  }
  if (!response.ok) throw await problemOf(response);
  yield* events(response.body, alive);
}

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/**
 * Follows the statistics of one switch until stopped, through restarts of the controller.
 *
 * onState(state, detail): "connecting", "live", "polling" (the server has no stream), "away",
 * "token" (wants one), "error"; onStats(statistics).
 */
export class Follower {
  constructor(onState, onStats) {
    Object.assign(this, { onState, onStats });
    this.run = 0;
  }

  /** Follows these switches from now on. */
  follow(names) {
    this.run += 1;
    this.abort?.abort();
    this.loop(this.run, names);
  }

  stop() {
    this.run += 1;
    this.abort?.abort();
  }

  async loop(run, names) {
    while (run === this.run) {
      this.abort = new AbortController();
      try {
        await this.stream(run, names);
      } catch (error) {
        if (run !== this.run) return;
        if (error.status === 401) {
          this.onState("token", error.message);
          return;
        }
        if (error.status === 404 && error.body.type !== "urn:pacer:problem:unknown-switch") {
          await this.poll(run, names).catch(() => this.onState("away"));
        } else if (error.status) {
          this.onState("error", error.message);
        }
      }
      if (run !== this.run) return;
      this.onState("away");
      await pause(RETRY_MS);
    }
  }

  async stream(run, names) {
    const query = new URLSearchParams([["interval_ms", INTERVAL_MS],
      ...names.map((name) => ["switch", name])]);
    let timer;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.abort.abort(), SILENCE_MS);
    };
    alive();
    try {
      const stream = streamOf(`/v1/stats/stream?${query}`, this.abort.signal, alive);
      for await (const [kind, data] of stream) {
        if (run !== this.run) return;
        if (kind === "stats") {
          this.onState("live");
          this.onStats(JSON.parse(data));
        } else if (kind === "error") {
          this.onState("error", JSON.parse(data).detail);
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** Asks again and again, until the controller goes away. */
  async poll(run, names) {
    while (run === this.run) {
      for (const name of names) {
        const [statistics] = await request("GET", at("switches", name, "stats"));
        if (run !== this.run) return;
        this.onState("polling");
        this.onStats(statistics);
      }
      await pause(INTERVAL_MS);
    }
  }
}

/**
 * Changes the rate of a class, or of a flow that has one of its own, and nothing else of it.
 *
 * Another's change in between is not undone: the resource is then read again, once.
 */
export async function setRate(switchName, owner, rate) {
  const path = at("switches", switchName, owner.kind === "flow" ? "flows" : "classes", owner.name);
  for (let attempt = 0; ; attempt += 1) {
    const [view, etag] = await request("GET", path);
    const body = owner.kind === "flow" ? flowOf(view) : classOf(view);
    try {
      return (await request("PUT", path, { ...body, rate }, etag ? { "If-Match": etag } : {}))[0];
    } catch (error) {
      if (error.status !== 412 || attempt > 0) throw error;
    }
  }
}

/** Deletes a class with the flows that use it, all or none; or a flow. */
export async function deleteOwner(switchName, { kind, name }) {
  if (kind === "flow") {
    await request("DELETE", at("switches", switchName, "flows", name));
    return;
  }
  await changeState(switchName, (state) => {
    delete state.classes[name];
    for (const [flow, spec] of Object.entries(state.flows)) {
      if (spec.class === name) delete state.flows[flow];
    }
  });
}

/** Changes the desired state of a switch as a whole, unless another client has changed it since. */
export async function changeState(switchName, change) {
  const path = at("switches", switchName, "state");
  const [state, etag] = await request("GET", path);
  change(state);
  await request("PUT", path, state, { "If-Match": etag });
}

const given = (view, names) => Object.fromEntries(
  names.filter((name) => view[name] !== null && view[name] !== undefined)
    .map((name) => [name, view[name]]));

function classOf(view) {
  return { ...given(view, ["mode", "limit_bytes", "ecn_threshold_bytes", "gap_bytes",
    "tick_hz", "headroom_percent", "threshold_ns", "quantum_bytes", "slots", "slot_ns", "slot",
    "window_margin_bytes", "port", "follow"]), ...allowance(view) };
}

function flowOf(view) {
  const meter = view.meter_name ?? view.meter;
  return { ...given(view, ["match", "priority", "class", "limit_bytes", "set_dscp"]),
    ...allowance(view),
    ...(meter ? { meter } : {}) };
}

/** An allowance that follows the rate is sent back as its word. */
function allowance(view) {
  return view.allowance === "auto" || view.allowance === "exact"
    ? { allowance_ns: view.allowance } : given(view, ["allowance_ns"]);
}
