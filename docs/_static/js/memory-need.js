/** What a model takes on each GPU: what `srunbook memory` prints, from the same formulas, in `memory.json`. */

const POWERS = { "": 0, K: 3, M: 6, B: 9, T: 12 };
const MOST = 10n ** 18n;
const NAMES = { sharing: "GPUs", gpus: "GPUs", "gpu-memory": "GB" };

/** What is wrong with a field, in words for the reader. */
class Problem extends Error {
  constructor(field, text) {
    super(text);
    this.field = field;
  }
}

/** Read a number of parameters, such as `7B` or `124,439,808`. */
function readCount(text) {
  const match = /^(?:(\d{1,3}(?:,\d{3})+)|(\d{1,19})(?:\.(\d{1,12}))?) ?([KMBT]?)$/.exec(text.trim().toUpperCase());
  if (!match) throw new Problem("count", `'${text}' is not a number of parameters: write 7B, 350M or 124439808`);
  const [, grouped, digits, decimals = "", suffix] = match;
  const scaled = BigInt((grouped ?? digits).replaceAll(",", "") + decimals) * 10n ** BigInt(POWERS[suffix]);
  const unit = 10n ** BigInt(decimals.length);
  if (scaled % unit || scaled < unit || scaled > MOST * unit) {
    throw new Problem("count", `'${text}' is not a number of parameters: expected a whole number from 1 to 10^18`);
  }
  return Number(scaled / unit);
}

function readNumber(largest, field, text) {
  const number = /^\d{1,9}$/.test(text.trim()) ? Number(text) : 0;
  if (number < 1 || number > largest[field]) {
    const what = NAMES[field] ? `a number of ${NAMES[field]}` : `a ${field}`;
    throw new Problem(field, `'${text}' is not ${what}: expected a whole number from 1 to ${largest[field]}`);
  }
  return number;
}

/** Write bytes as GB with two digits, halves rounded up. */
const gigabytes = (bytes) => (Math.floor(bytes / 10_000_000 + 0.5) / 100).toFixed(2);

const compute = (formula, values) =>
  new Function(...Object.keys(values), `return ${formula}`)(...Object.values(values));

/** Return bytes by name; `most` is what a GPU holds at once. */
function estimate(formulas, given, layout, sequences = 1) {
  const values = { ...given, sequences, ...formulas.layouts[layout] };
  const named = { kept: given.optimizer, ...formulas.model, ...(given.layers ? formulas.transformer : {}) };
  for (const [name, formula] of Object.entries(named)) values[name] = compute(formula, values);
  const moments = given.layers ? formulas.moments : { most: "parameters + gradients + optimizer + copies" };
  const atOnce = Object.values(moments).map((formula) => compute(formula, values));
  return { ...values, atOnce, most: Math.max(...atOnce) };
}

function sequencesThatFit(formulas, given, layout, size) {
  const [none, one] = [0, 1].map((sequences) => estimate(formulas, given, layout, sequences));
  if (none.most > size) return 0;
  const rests = none.atOnce.map((before, at) => Math.floor((size - before) / (one.atOnce[at] - before)));
  return Math.min(...rests.filter((_, at) => one.atOnce[at] > none.atOnce[at]));
}

function verdict(formulas, given, size, fitting) {
  if (!given.layers) {
    const left = size - estimate(formulas, given, "FSDP").most;
    if (left > 0) {
      return `FSDP leaves ${gigabytes(left)} GB. To count activations: --layers, --width and --vocabulary.`;
    }
    return `FSDP lacks ${gigabytes(-left)} GB: use more GPUs.`;
  }
  for (const [name, sequences] of fitting) {
    if (sequences) return `Use ${name}. Sequences of ${given.length} tokens on each GPU at a time: ${sequences}.`;
  }
  const last = Object.keys(formulas.layouts).at(-1);
  for (let more = given.sharing * 2; more <= formulas.largest.gpus; more *= 2) {
    if (sequencesThatFit(formulas, { ...given, sharing: more, several: 1 }, last, size)) {
      return `Nothing fits. Share each copy among ${more} GPUs: ${last}, then fits.`;
    }
  }
  return `A sequence of ${given.length} tokens is too long for these layouts: use tensor or context parallelism.`;
}

/**
 * Answer a form.
 * @param {object} formulas of `memory.json`
 * @param {Object<string, string>} fields as typed, and `tied`, which is "" or "tied"
 * @returns {{command: string, rows: string[][], verdict: string} | {field: string, problem: string}} the command that
 *   prints the same, the rows of its table with their heading, and its last line; or what is wrong with a field
 */
export function answer(formulas, fields) {
  try {
    const count = readCount(fields.count);
    const read = (field, usual) => (fields[field]?.trim() ? readNumber(formulas.largest, field, fields[field]) : usual);
    const gpus = readNumber(formulas.largest, "gpus", fields.gpus);
    const sharing = read("sharing", gpus);
    if (gpus % sharing) {
      throw new Problem("sharing", `${gpus} GPUs do not divide into groups of ${sharing}: choose a divisor`);
    }
    const [layers, width, vocabulary] = ["layers", "width", "vocabulary"].map((field) => read(field, 0));
    const length = read("length", 4096);
    const memory = read("gpu-memory", 0);
    const given = { count, sharing, several: gpus > 1 ? 1 : 0, ...formulas.precisions[fields.precision] };
    given.optimizer = formulas.optimizers[fields.optimizer];
    if (layers && width && vocabulary) {
      Object.assign(given, { layers, width, vocabulary, length, matrices: fields.tied ? 1 : 2 });
      const words = given.matrices * vocabulary * width;
      if (words >= count) {
        throw new Problem("vocabulary", `embedding and head have ${words} parameters, and the model has ${count}`);
      }
    } else if (layers || width || vocabulary) {
      throw new Problem("layers", "activations need layers, width and vocabulary");
    }
    const layouts = Object.keys(formulas.layouts).slice(0, layers ? undefined : 2);
    const needs = layouts.map((layout) => estimate(formulas, given, layout));
    const rows = Object.entries({ ...formulas.rows, "most at once": "most" })
      .filter(([, name]) => name in needs[0])
      .map(([label, name]) => [label, ...needs.map((need) => gigabytes(need[name]))]);
    let fitting = [];
    if (memory && layers) {
      fitting = layouts.map((layout) => [layout, sequencesThatFit(formulas, given, layout, memory * 1e9)]);
      rows.push([`sequences in ${memory} GB`, ...fitting.map(([, sequences]) => String(sequences))]);
    }
    const changed = [
      ["gpus", gpus, 1],
      ["sharing", sharing, gpus],
      ["optimizer", fields.optimizer, "adamw"],
      ["precision", fields.precision, "mixed"],
      ["layers", layers, 0],
      ["width", width, 0],
      ["vocabulary", vocabulary, 0],
      ["length", length, 4096],
      ["gpu-memory", memory, 0],
    ].filter(([, value, usual]) => value !== usual);
    const options = changed.map(([name, value]) => `--${name} ${value}`);
    const name = /[ ,]/.test(fields.count.trim()) ? `'${fields.count.trim()}'` : fields.count.trim();
    return {
      command: ["srunbook memory", name, ...options, ...(fields.tied ? ["--tied"] : [])].join(" "),
      rows: [["GB on each GPU", ...layouts], ...rows],
      verdict: memory ? verdict(formulas, given, memory * 1e9, fitting) : "",
    };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return { field: error.field, problem: error.message };
  }
}
