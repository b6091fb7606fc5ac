/* Logs as lines: packed or not, with colours, with progress bars. Classic scripts, so that a page on a disk loads them.
   What `srunbook.explain.scan` does; a text here has one character for each byte, until a line is shown. */
"use strict";

((explain) => {
  const AT_ONCE = 2 ** 15;
  const GZIP = [0x1f, 0x8b];
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  /** Make a text with one character for each byte. @param {Uint8Array} bytes */
  function binary(bytes) {
    let text = "";
    for (let at = 0; at < bytes.length; at += AT_ONCE) text += String.fromCharCode.apply(null, bytes.subarray(at, at + AT_ONCE));
    return text;
  }

  /** Read such a text as UTF-8; what is no UTF-8 becomes �. @param {string} text */
  function decoded(text) {
    if (!/[\x80-\xff]/.test(text)) return text;
    return decoder.decode(Uint8Array.from(text, (character) => character.charCodeAt(0)));
  }

  /** The lines of a log, many at a time. */
  class LineReader {
    constructor({ expressions, limits }) {
      this.colours = expressions.COLOURS;
      this.longest = limits.LONGEST_LINE;
      this.rest = "";
      this.number = 1;
    }

    /**
     * @param {string} block more of the log
     * @returns {{texts: string[], numbers: number[]}} the lines that end in it, with their numbers in the file, from 1
     */
    push(block) {
      const data = this.rest + block;
      let end = data.lastIndexOf("\n") + 1;
      this.rest = data.slice(end);
      if (this.rest.length > this.longest) [end, this.rest] = [data.length, ""];
      if (!end) return { texts: [], numbers: [] };
      const ends = data[end - 1] === "\n";
      const whole = data.slice(0, ends ? end - 1 : end);
      const lines = this.split(whole.includes("\x1b") ? whole.replace(this.colours, "") : whole, this.number);
      this.number += whole.split("\n").length - 1 + (ends ? 1 : 0);
      return lines;
    }

    end() {
      return this.push("\n");
    }

    /** Make a line of each state of a progress bar, and of each piece of a line without end. */
    split(text, first) {
      const [texts, numbers] = [[], []];
      text.split("\n").forEach((line, place) => {
        for (const piece of line.includes("\r") ? line.split("\r") : [line]) {
          for (let start = 0; start === 0 || start < piece.length; start += this.longest) {
            texts.push(piece.length > this.longest ? piece.slice(start, start + this.longest) : piece);
            numbers.push(first + place);
          }
        }
      });
      return { texts, numbers };
    }
  }

  /** Tell whether a log begins like a file of gzip. @param {Uint8Array} bytes */
  const isPacked = (bytes) => GZIP.every((byte, place) => bytes[place] === byte);

  /** What unpacks a log, piece by piece. */
  class Unpacker {
    /** @param {any} fflate the library @param {(bytes: Uint8Array) => void} use gets what was unpacked */
    constructor(fflate, use) {
      this.stream = new fflate.Gunzip(use);
      this.problem = "";
    }

    /** @param {Uint8Array} bytes @param {boolean} last whether these are the last ones */
    push(bytes, last) {
      if (this.problem) return;
      try {
        this.stream.push(bytes, last);
      } catch {
        const damage = last ? "cut off: only what it holds" : "damaged: only what comes before the damage";
        this.problem = `the gzip file is ${damage} was read`;
      }
    }
  }

  Object.assign(explain, { binary, decoded, LineReader, isPacked, Unpacker });
})((globalThis.logExplainer ??= {}));
