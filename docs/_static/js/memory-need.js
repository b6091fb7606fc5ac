/**
 * What a model takes on each GPU: the numbers that `srunbook memory` prints, from the same formula.
 *
 * Bytes are BigInt: 10^18 parameters of 16 bytes are more than a double counts.
 */

/** How many numbers an optimizer keeps for each parameter. */
const OPTIMIZERS = { sgd: 0n, momentum: 1n, adamw: 2n };

/** Bytes of a parameter, of its gradient, and of each number that the optimizer keeps for it. */
const PRECISIONS = { float32: [4n, 4n, 4n], mixed: [4n, 4n, 4n], bf16: [2n, 2n, 2n] };

const POWERS = { "": 0, K: 3, M: 6, B: 9, T: 12 };
const MOST = 10n ** 18n;
const MOST_GPUS = 1_000_000;

/** What is wrong with a field, in words for the reader. */
class Problem extends Error {
  constructor(field, text) {
    super(text);
    this.field = field;
  }
}

/** The words to choose from: `{optimizer, precision}`. */
export const choices = () => ({ optimizer: Object.keys(OPTIMIZERS), precision: Object.keys(PRECISIONS) });

/** Read a number of parameters, such as `7B` or `124439808`. */
function readCount(text) {
  const match = /^(\d{1,19})(?:\.(\d{1,12}))?([KMBT]?)$/.exec(text.trim().toUpperCase());
  if (!match) throw new Problem("count", `'${text}' is not a number of parameters: write 7B, 350M or 124439808`);
  const [, digits, decimals = "", suffix] = match;
  const scaled = BigInt(digits + decimals) * 10n ** BigInt(POWERS[suffix]);
  const unit = 10n ** BigInt(decimals.length);
  if (scaled % unit || scaled < unit || scaled > MOST * unit) {
    throw new Problem("count", `'${text}' is not a number of parameters: expected a whole number from 1 to 10^18`);
  }
  return scaled / unit;
}

function readGpus(field, text) {
  const number = /^\d{1,7}$/.test(text.trim()) ? Number(text) : 0;
  if (number < 1 || number > MOST_GPUS) {
    throw new Problem(field, `'${text}' is not a number of GPUs: expected a whole number from 1 to ${MOST_GPUS}`);
  }
  return number;
}

/** Write bytes as GB with two digits, halves rounded up. */
function gigabytes(bytes) {
  const hundredths = String((bytes + 5_000_000n) / 10_000_000n).padStart(3, "0");
  return `${hundredths.slice(0, -2)}.${hundredths.slice(-2)}`;
}

function row(name, parts) {
  return [name, ...[...parts, parts.reduce((sum, part) => sum + part)].map(gigabytes)];
}

/**
 * Answer a form.
 * @param {{count: string, gpus: string, sharing: string, optimizer: string, precision: string}} fields as typed;
 *   without a number in `sharing`, all GPUs share one copy
 * @returns {{command: string, rows: string[][]} | {field: string, problem: string}} the command that prints the same,
 *   and the rows of its table with their heading; or what is wrong with a field
 */
export function answer({ count, gpus, sharing, optimizer, precision }) {
  try {
    const parameters = readCount(count);
    const all = readGpus("gpus", gpus);
    const share = sharing.trim() ? readGpus("sharing", sharing) : all;
    if (all % share) throw new Problem("sharing", `${all} GPUs do not divide into groups of ${share}: choose a divisor`);
    const [parameter, gradient, state] = PRECISIONS[precision];
    const whole = [parameter, gradient, state * OPTIMIZERS[optimizer]].map((bytes) => bytes * parameters);
    const divisor = BigInt(share);
    const divided = whole.map((bytes) => (bytes + divisor - 1n) / divisor);
    const changed = [
      ["gpus", all, 1],
      ["sharing", share, all],
      ["optimizer", optimizer, "adamw"],
      ["precision", precision, "mixed"],
    ].filter(([, value, usual]) => value !== usual);
    return {
      command: ["srunbook memory", count.trim(), ...changed.map(([name, value]) => `--${name} ${value}`)].join(" "),
      rows: [
        ["GB on each GPU", "parameters", "gradients", "optimizer", "together"],
        row("DDP, each GPU holds all", whole),
        row(`FSDP, ${share} share a copy`, divided),
      ],
    };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return { field: error.field, problem: error.message };
  }
}
