/** The zip of a guide, with other job scripts in it: every other file keeps its bytes. fflate packs and unpacks. */

/**
 * @param {Uint8Array} bytes the zip that the build made
 * @param {(text: string) => string} fit fits a job script
 * @param {any} fflate the library
 * @returns {Uint8Array} the zip with fitted job scripts, and with a README that says so
 */
export function fittedZip(bytes, fit, fflate) {
  const files = fflate.unzipSync(bytes);
  const entries = Object.entries(files).map(([name, content]) => {
    let text = content;
    if (name.endsWith(".sbatch")) text = fflate.strToU8(fit(fflate.strFromU8(content)));
    if (name.endsWith("/README.md")) text = fflate.strToU8(introduced(fflate.strFromU8(content)));
    const mode = name.endsWith(".sh") ? 0o100755 : 0o100644; // fflate does not read modes
    return [name, [text, { os: 3, attrs: mode << 16 }]];
  });
  return fflate.zipSync(Object.fromEntries(entries), { level: 9 });
}

/** Say below the title of a README that the job scripts are not the originals. */
function introduced(readme) {
  return readme.replace("\n", "\n\nThe job scripts in this folder are fitted to your cluster.\n");
}
