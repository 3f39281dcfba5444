// The samples of the last minute, and values derived from them.

const KEEP_MS = 66000;

/** A minute of points: [{t, v}], t in ms. */
export class History {
  constructor() {
    this.points = [];
  }

  add(t, v) {
    this.points.push({ t, v });
    while (this.points[0].t < t - KEEP_MS) this.points.shift();
  }

  /** Puts earlier points in front. */
  seed(points) {
    const first = this.points[0]?.t ?? Infinity;
    this.points.unshift(...points.filter(({ t }) => t < first));
  }

  get last() {
    return this.points.at(-1);
  }
}

/**
 * Growth of counters per second between the last two samples; null where there is none. Times are
 * ms of the switch's clock: two samples may arrive together.
 */
export class Growth {
  constructor() {
    this.before = new Map();
  }

  perSecond(key, value, t) {
    const before = this.before.get(key);
    this.before.set(key, { value, t });
    // A counter that went back belongs to a switch that began anew.
    if (!before || t <= before.t || value < before.value || t - before.t > 10000) return null;
    return ((value - before.value) * 1000) / (t - before.t);
  }
}

/** Buckets of a histogram that only grows, less what they were a minute ago. */
export class RecentBuckets {
  constructor() {
    this.history = new History();
  }

  /** Returns {buckets, recent}: of the last minute, or of all time where that has none. */
  add(t, buckets) {
    const last = this.history.last;
    if (last && buckets.some((n, i) => n < (last.v[i] ?? 0))) this.history = new History();
    this.history.add(t, buckets);
    const base = this.history.points[0].v;
    const grown = buckets.map((n, i) => n - (base[i] ?? 0));
    const recent = grown.some((n) => n > 0);
    return { buckets: trimmed(recent ? grown : buckets), recent };
  }
}

function trimmed(buckets) {
  let end = buckets.length;
  while (end > 0 && buckets[end - 1] === 0) end -= 1;
  return buckets.slice(0, end);
}
