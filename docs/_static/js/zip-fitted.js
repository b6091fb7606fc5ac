/**
 * The zip of a guide, with other job scripts in it: every other file keeps its bytes, and every file its mode.
 *
 * fflate packs and unpacks. What it does not tell, the modes of the files, is read here from the zip's directory.
 */

const DATE = "1980-01-01 00:00"; // as in the zip that the build made: the same files make the same bytes
const ENTRY = 0x02014b50;
const END = 0x06054b50;

/**
 * @param {Uint8Array} bytes the zip that the build made
 * @param {(text: string) => string} fit fits a job script
 * @param {any} fflate the library
 * @returns {Uint8Array} the zip with fitted job scripts, and with a README that says so
 */
export function fittedZip(bytes, fit, fflate) {
  const files = fflate.unzipSync(bytes);
  const modes = modesOf(bytes);
  for (const name of Object.keys(files).filter((name) => name.endsWith(".sbatch"))) {
    files[name] = fflate.strToU8(fit(fflate.strFromU8(files[name])));
  }
  const readme = Object.keys(files).find((name) => /^[^/]*\/README\.md$/.test(name));
  files[readme] = fflate.strToU8(introduced(fflate.strFromU8(files[readme])));
  const entries = Object.keys(files).map((name) => [name, [files[name], { os: 3, attrs: modes.get(name), mtime: DATE }]]);
  return fflate.zipSync(Object.fromEntries(entries), { level: 9 });
}

/** Say below the title of a README that the job scripts are not the originals. */
function introduced(readme) {
  const said = "The job scripts in this folder are fitted to your cluster; the runs below are those of the originals.";
  return readme.replace("\n", () => `\n\n${said}\n`);
}

/**
 * The mode of each file in a zip, in the form of its directory.
 * @param {Uint8Array} bytes @returns {Map<string, number>}
 */
export function modesOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== END) end -= 1;
  if (end < 0) throw Error("this is not a whole zip");
  const modes = new Map();
  let place = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left -= 1) {
    if (view.getUint32(place, true) !== ENTRY) throw Error("the directory of the zip is damaged");
    const [length, extra, comment] = [28, 30, 32].map((offset) => view.getUint16(place + offset, true));
    const name = new TextDecoder().decode(bytes.subarray(place + 46, place + 46 + length));
    modes.set(name, view.getUint32(place + 38, true));
    place += 46 + length + extra + comment;
  }
  return modes;
}
