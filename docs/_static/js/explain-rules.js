/* The data of the build made ready: expressions, messages, small things that mean the same in Python. */
"use strict";

((explain) => {
  const encoder = new TextEncoder();
  const AROUND = /^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+|[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+$/g;

  /**
   * @param {object} data what `docs/_ext/paste_box.py` makes
   * @returns {object} the same with `expressions`, which are used with `matchAll` and `replace`, and `sticky`, for a place
   */
  function ready(data) {
    const named = Object.entries(data.patterns);
    const made = (flag) => Object.fromEntries(named.map(([name, [source, flags]]) => [name, new RegExp(source, flags + flag)]));
    return {
      ...data,
      expressions: made("g"),
      sticky: made("y"),
      times: data.times.map(([source, flags]) => new RegExp(source, `${flags}g`)),
      messages: data.messages.map(([slug, anchor, source, flags]) => ({
        slug,
        anchor: explain.binary(encoder.encode(anchor)),
        expression: new RegExp(source, flags),
      })),
      ordinary: new Set(data.ordinary),
      nobody: new Set(data.nobody),
      loud: new RegExp(data.words.map(literal).join("|")),
    };
  }

  /** Write a text so that an expression finds it as it stands. */
  const literal = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");

  /** Tell whether an expression is found anywhere; one with the flag `g` begins at its beginning. */
  function has(expression, text) {
    expression.lastIndex = 0;
    return expression.test(text);
  }

  /** Match an expression with the flag `y` at a place. */
  function matchAt(expression, text, place) {
    expression.lastIndex = place;
    return expression.exec(text);
  }

  /** Take spaces off both ends, those that Python takes. */
  const strip = (text) => text.replace(AROUND, "");

  /** Return the first characters of a text, as many as are wanted. */
  const cut = (text, most) => (text.length <= most ? text : [...text].slice(0, most).join(""));

  Object.assign(explain, { ready, literal, has, matchAt, strip, cut });
})((globalThis.logExplainer ??= {}));
