// Formats numbers, and parses rates.

const NARROW = "\u202f"; // between a number and its unit; does not break

/** Three significant digits, without a tail of zeros for whole numbers. */
export function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return value.toFixed(size >= 10 ? 1 : 2);
}

function scaled(value, step, units, exact = false) {
  let unit = 0;
  let size = value;
  // 999.6 would be written as 1000: the next unit is meant.
  while (Math.abs(size) >= step - 0.5 && unit < units.length - 1) {
    size /= step;
    unit += 1;
  }
  return [exact ? String(Number(size.toFixed(6))) : digits(size), units[unit]];
}

/** Bits per second as [number, unit]. */
export function rateParts(bps) {
  return scaled(bps, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]);
}

/** Bits per second, for people; null is a dash. */
export function rate(bps) {
  return bps === null || bps === undefined ? "–" : rateParts(bps).join(NARROW);
}

/** A rate as the controller reads it: "472Mbit". */
export function rateText(bps) {
  for (const [scale, unit] of [[1e9, "Gbit"], [1e6, "Mbit"], [1e3, "kbit"]]) {
    if (bps >= scale && (bps * 1000) % scale === 0) return `${bps / scale}${unit}`;
  }
  return `${bps}bit`;
}

/** Bytes, in powers of 1024 as in the CLI; null is a dash. */
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  return scaled(count, 1024, ["B", "KB", "MB", "GB"]).join(NARROW);
}

/** A time given in ns; null is a dash. */
export function time(ns) {
  if (ns === null || ns === undefined) return "–";
  return scaled(ns, 1000, ["ns", "µs", "ms", "s"]).join(NARROW);
}

/** A count, with the thousands set apart; null is a dash. */
export function count(number) {
  if (number === null || number === undefined) return "–";
  if (Math.abs(number) >= 1e7) return scaled(number, 1000, ["", "k", "M", "G", "T"]).join(NARROW);
  return Math.round(number).toLocaleString("en").replaceAll(",", NARROW);
}

/** A share of 1, in percent. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  return `${value >= 10 || value === 0 ? Math.round(value) : value.toFixed(1)}${NARROW}%`;
}

const BITS = { bit: 1, kbit: 1e3, mbit: 1e6, gbit: 1e9, kibit: 1024, mibit: 1048576,
  gibit: 1073741824, "": 1 };

/** Bits per second of "500Mbit", or null; only to place the slider: the controller decides. */
export function readRate(text) {
  const found = /^([0-9]+(?:\.[0-9]+)?) ?([a-z]*)$/.exec(text.trim().toLowerCase());
  if (!found || !(found[2] in BITS)) return null;
  return Number(found[1]) * BITS[found[2]];
}
