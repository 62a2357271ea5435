// Times and amounts as people read them.

/** Return how long ago a time was, as kubectl shows it. */
export function age(time, now = Date.now()) {
  const at = typeof time === "number" ? time : Date.parse(time);
  return Number.isNaN(at) ? "" : span((now - at) / 1000);
}

/** Return a number of seconds in its largest unit. */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  if (whole < 7200) return `${Math.floor(whole / 60)}m`;
  if (whole < 172800) return `${Math.floor(whole / 3600)}h`;
  if (whole < 63072000) return `${Math.floor(whole / 86400)}d`;
  return `${Math.floor(whole / 31536000)}y`;
}

/** Return a time of today, or with its date if it is another day's. */
export function clock(time, now = Date.now()) {
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return "";
  const pad = (number) => String(number).padStart(2, "0");
  const hours = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  if (at.toDateString() === new Date(now).toDateString()) return hours;
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${hours}`;
}

/** Return a time in seconds as the API takes it. */
export function rfc3339(milliseconds) {
  return new Date(milliseconds).toISOString().replace(/\.\d+Z$/, "Z");
}

/** Return a number of bytes in its unit. */
export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = Math.abs(count);
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const text = unit && size < 10 ? size.toFixed(1) : Math.round(size);
  return `${count < 0 ? "-" : ""}${text} ${units[unit]}`;
}

/** Return an amount of CPU. */
export function cores(count) {
  return count < 1 ? `${Math.round(count * 1000)}m` : count.toFixed(count < 10 ? 2 : 1);
}

/** Return a number of milliseconds. */
export function took(milliseconds) {
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}
