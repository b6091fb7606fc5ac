/* What a diagnosis looks like below the paste box. */
"use strict";

((explain) => {
  const MARKS = /`([^`]+)`|\[([^\]]+)\]\((https?:\/\/[^)\s]+)\)/g;

  /** Make an element with attributes and children. */
  function make(name, attributes = {}, ...children) {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  /** Make nodes of a line with code between backticks, and links as Markdown writes them. */
  function inlined(text) {
    const nodes = [];
    let end = 0;
    for (const found of text.matchAll(MARKS)) {
      const [whole, code, label, href] = found;
      nodes.push(text.slice(end, found.index), code ? make("code", { className: "literal", textContent: code }) : make("a", { href, textContent: label }));
      end = found.index + whole.length;
    }
    return [...nodes, text.slice(end)];
  }

  /**
   * Show a report.
   * @param {object} report a `Report` that masks nothing
   * @param {(slug: string) => string} pageOf the address of an entry's page
   * @returns {HTMLElement[]}
   */
  function view(report, pageOf) {
    const { cause, consequences, warnings, toSearch } = report.diagnosis;
    const { entries, limits } = report.rules;
    const others = toSearch.filter((finding) => finding !== cause);

    const quote = (finding) => make("pre", { className: "paste-quote", tabIndex: 0 }, explain.printable(finding.text));
    const place = (finding) => make("p", { className: "paste-place" }, report.place(finding));
    const advice = ({ slug }, about = slug) => [
      make("p", { className: "failure-fix" }, make("strong", {}, "Fix: "), ...inlined(entries[about].fix)),
      make("p", { className: "paste-page" }, make("a", { href: pageOf(about) }, "Read why: ", make("code", { className: "literal" }, entries[about].title))),
    ];
    const listed = (title, findings, show) =>
      findings.length ? [make("h3", {}, title), make("ul", {}, ...findings.map((finding) => make("li", {}, ...show(finding))))] : [];

    const shown = [];
    if (!cause) shown.push(...nothing(report));
    else if (cause.slug) shown.push(make("h2", {}, "The first failure"), place(cause), quote(cause), ...advice(cause));
    else if (report.ended(cause)) {
      const [who, why] = report.sentence(cause).split("; ");
      shown.push(make("h2", {}, who), make("p", {}, `${why[0].toUpperCase()}${why.slice(1)}`), place(cause), quote(cause), ...advice(cause, report.rules.says_nothing));
    } else shown.push(make("h2", {}, "No entry knows this"), place(cause), quote(cause));
    shown.push(...listed(`Worth searching for${cause ? " as well" : ""}`, others, (finding) => [place(finding), quote(finding)]));
    const followed = consequences.slice(0, limits.MOST_SHOWN);
    shown.push(...listed("What followed", followed, (finding) => [place(finding), quote(finding), ...advice(finding)]));
    shown.push(...listed("No failure, but worth reading", warnings, (finding) => [quote(finding), ...advice(finding)]));
    return shown;
  }

  /** Say that no line speaks of a failure, and what judges a job. */
  function nothing(report) {
    const [first] = report.nothing();
    const command = make("code", { className: "literal", textContent: "srunbook verify JOBID" });
    return [make("h2", {}, first), make("p", {}, "If the job ended well, check that it did what it should: ", command)];
  }

  Object.assign(explain, { make, view });
})((globalThis.logExplainer ??= {}));
