/* Read the logs that somebody chose, a piece at a time, so that the page stays alive meanwhile. */
"use strict";

((explain) => {
  const BUSY = 25; // milliseconds after which the page gets a turn
  const STRANGE_SHARE = 0.03; // bytes that no text has, among the first ones of a file that is none

  const breath = () => new Promise((resolve) => setTimeout(resolve));

  /** Tell whether bytes are no text: many of them are control characters. @param {Uint8Array} bytes */
  function isRubbish(bytes) {
    const strange = bytes.filter((byte) => (byte < 7 || (byte > 13 && byte < 32)) && byte !== 27).length;
    return strange > STRANGE_SHARE * bytes.length;
  }

  /**
   * Read one log.
   * @param {{name: string, file: Blob}} log
   * @param {object} rules
   * @param {() => Promise<any>} unpacking loads the library that unpacks
   * @param {(bytes: number) => void} said gets how many more bytes were read; it throws to stop
   */
  async function scanFile({ name, file }, rules, unpacking, said) {
    const scan = new explain.LogScan(rules, name);
    const size = rules.limits.BLOCK;
    const pieces = [];
    let unpacker = null;
    let turn = performance.now();
    for (let at = 0; at < file.size; at += size) {
      const block = new Uint8Array(await file.slice(at, at + size).arrayBuffer());
      if (at === 0 && explain.isPacked(block)) {
        unpacker = new explain.Unpacker(await unpacking(), (piece) => pieces.push(piece.slice()));
      }
      if (unpacker) unpacker.push(block, at + size >= file.size);
      else pieces.push(block);
      while (pieces.length) {
        const piece = pieces.shift();
        if (!scan.size && isRubbish(piece)) scan.problems.push("this does not look like text");
        scan.size += piece.length;
        scan.push(piece);
        if (performance.now() - turn > BUSY) {
          await breath();
          said(0);
          turn = performance.now();
        }
      }
      said(block.length);
    }
    if (unpacker?.problem) scan.problems.push(unpacker.problem);
    if (!scan.size) scan.problems.push("the file is empty");
    return scan.end();
  }

  /**
   * Read logs and diagnose them.
   * @param {{name: string, file: Blob}[]} logs
   * @param {object} rules
   * @param {() => Promise<any>} unpacking
   * @param {(bytes: number) => void} said
   * @returns {Promise<{scans: object[], diagnosis: object, problems: string[]}>}
   */
  async function explainFiles(logs, rules, unpacking, said) {
    const scans = [];
    const problems = [];
    for (const log of logs) {
      try {
        const scan = await scanFile(log, rules, unpacking, said);
        scans.push(scan);
        problems.push(...scan.problems.map((problem) => `${log.name}: ${problem}`));
      } catch (error) {
        if (!(error instanceof DOMException)) throw error;
        problems.push(`${log.name}: your browser cannot read it: ${error.message}`);
      }
    }
    return { scans, diagnosis: explain.diagnose(scans, rules), problems };
  }

  Object.assign(explain, { explainFiles });
})((globalThis.logExplainer ??= {}));
