/**
 * What the reader has said of the cluster, kept in this browser and nowhere else.
 *
 * A browser may forbid storage, or it may be full: the values then hold until the page is left.
 */

const KEY = "srunbook.cluster";
/** @type {Record<string, any>|null} */
let memory = null;
const listeners = [];

/** The configuration; null without one. @returns {Record<string, any>|null} */
export function load() {
  try {
    const text = localStorage.getItem(KEY);
    const found = text === null ? null : JSON.parse(text);
    if (found !== null && typeof found === "object" && !Array.isArray(found)) return found;
  } catch {
    // Forbidden, or not written by us: as if nothing were there.
  }
  return memory;
}

/** Keep a configuration, or forget it with null; return whether the next page will know it. */
export function save(config) {
  const empty = config === null || !Object.keys(config).length;
  memory = empty ? null : config;
  let kept = true;
  try {
    if (empty) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, JSON.stringify(config));
  } catch {
    kept = false;
    try {
      localStorage.removeItem(KEY); // an older configuration must not win over this one
    } catch {
      // Nothing is kept at all.
    }
  }
  listeners.forEach((listener) => listener());
  return kept;
}

/** Call a function whenever the configuration changes, in another tab too. @param {() => void} listener */
export function onChange(listener) {
  listeners.push(listener);
  window.addEventListener("storage", (event) => {
    if (event.key === KEY || event.key === null) listener();
  });
}
