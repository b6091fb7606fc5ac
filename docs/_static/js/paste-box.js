/* The paste box: finds which entry of this page explains the first failure in a log. Nothing is sent.
   What it looks for is data of `srunbook.explain`, which the build puts into the page. */
"use strict";

(() => {
  const box = document.querySelector(".paste-box");
  const data = JSON.parse(document.getElementById("paste-data").textContent);
  const compiled = (pattern, flags = "") => new RegExp(pattern, `s${flags}`);
  const [colours, measured, varying] = ["colours", "measured", "varying"].map((name) => compiled(data[name], "g"));
  const [label, time] = [data.label, data.times[0]].map((pattern) => compiled(`^${pattern}`));
  const [chained, task, ended] = ["chained", "task", "ended"].map((name) => compiled(data[name]));
  const alike = data.alike.map(([pattern, text]) => [compiled(pattern, "g"), text]);
  const levels = data.levels.map(({ level, patterns }) => [level, compiled(patterns.join("|"))]);
  const forms = data.forms.map(([pattern, place]) => ({ pattern: compiled(pattern), entry: data.entries[place] }));
  const ordinary = new Set(data.ordinary);

  /** Roles of entries, and levels of lines without an entry: what comes first is the more likely cause. */
  const ORDER = ["cause", "EXCEPTION", "HARD", "consequence", "ERROR", "ENDED"];
  const LONGEST_QUOTE = 500;

  const TITLES = {
    cut: "This log breaks off in a traceback, before the line that says what failed:",
    ENDED: "No line says why. This task ended first:",
    warning: "Nothing looks like a failure. This line is worth reading:",
    healthy: "The job looks healthy: it came to its end. This line is a warning:",
    unknown: "The first line that looks like a failure:",
    known: "The first failure:",
  };

  /** Take what launchers put before a line, and its time, off the line. */
  function stripped(line) {
    let [text, rank] = [line, ""];
    for (let match; (match = label.exec(text)); text = text.slice(match[0].length)) {
      rank = match.slice(1).find(Boolean) ?? rank;
    }
    return [text.replace(time, "").trim(), rank];
  }

  function levelOf(text) {
    const judged = text.replace(measured, "");
    const level = levels.find(([, pattern]) => pattern.test(judged))?.[0];
    return level !== "ENDED" && ordinary.has(text.replace(varying, "")) ? "" : level;
  }

  /** Return what the entries know of a log, or what speaks of trouble: the first line of each kind. */
  function findingsIn(log) {
    const seen = new Set();
    const findings = [];
    const ends = new Set();
    let [traceback, raised] = []; // where the first one begins, and whether there is an exception
    let last = -1; // the line that tells of an end last
    for (const [place, line] of log.replace(colours, "").split(/[\r\n]+/).entries()) {
      const end = ended.exec(line);
      if (end) last = place;
      if (end?.[1]) ends.add(`${end[1]}/${end[2]}`);
      const shape = line.replace(/\d+/g, "");
      if (seen.has(shape)) continue;
      seen.add(shape);
      const [text, rank] = stripped(line);
      if (chained.test(text)) {
        const above = findings.findLastIndex((finding) => finding.rank === rank); // led to what comes below
        if (above >= 0 && (!findings[above].slug || findings[above].kind === "consequence")) findings.splice(above, 1);
        continue;
      }
      const plain = alike.reduce((whole, [pattern, text]) => whole.replace(pattern, text), line);
      if (line.includes(data.traceback)) traceback ??= { slug: data.says_nothing, kind: "cut", explains: [], line, text, rank };
      const known = forms.find(({ pattern }) => pattern.test(plain))?.entry; // the most specific form comes first
      if (known) findings.push({ ...known, kind: known.role, line, text, rank });
      const level = levelOf(text);
      raised ||= level === "EXCEPTION";
      const kind = known ? "" : level;
      if (kind) findings.push({ slug: "", kind, explains: [], line, text, rank, place });
    }
    // What the end follows is no failure: the end of all ranks, or for an error in one line, of any training.
    const size = (end) => end.split("/")[1];
    const whole = [...ends].every((end) => Array.from(Array(+size(end)).keys()).every((rank) => ends.has(`${rank}/${size(end)}`)));
    findings.forEach((finding) => {
      const soft = finding.kind === "ERROR" || (ends.size && ["EXCEPTION", "HARD"].includes(finding.kind));
      finding.survived = soft && whole && finding.place < last;
    });
    if (traceback && !raised) findings.push(traceback);
    return findings;
  }

  /** Return the first failure among findings; its `slug` is empty where no entry fits. */
  function firstFailure(all) {
    const slugs = new Set(all.map(({ slug }) => slug));
    const came = all.filter(({ beside, explains }) => !beside || explains.some((slug) => slugs.has(slug)));
    const explained = new Set(came.flatMap(({ explains }) => explains));
    const waited = new Set();
    const findings = came.filter(({ slug, kind, rank }) => {
      if (kind === "consequence") waited.add(rank);
      return !explained.has(slug) && (slug || !waited.has(rank)); // what a rank says below belongs to it
    });
    const inOrder = ORDER.flatMap((kind) => findings.filter((finding) => finding.kind === kind));
    const first = inOrder.find(({ survived }) => !survived);
    if (first && first.kind !== "ENDED") return first;
    const signal = first && task.exec(first.text);
    if (signal && signal[4] !== data.stopped) return { ...first, slug: data.says_nothing };
    const [cut, warning] = ["cut", "warning"].map((wanted) => findings.find(({ kind }) => kind === wanted));
    return cut ?? warning ?? (inOrder.length && inOrder[0].survived ? { ...inOrder[0], kind: "healthy" } : undefined);
  }

  function show(log) {
    const result = box.querySelector(".paste-result");
    const say = (text) => Object.assign(document.createElement("p"), { textContent: text });
    const failure = firstFailure(findingsIn(log));
    if (!failure) {
      const sentence = log.trim() ? "Nothing looks like a failure." : "Nothing to read: paste the log first.";
      result.replaceChildren(say(sentence));
      return;
    }
    const { slug, kind, line, text } = failure;
    const quote = Object.assign(document.createElement("pre"), { textContent: line.trim().slice(0, LONGEST_QUOTE) });
    result.replaceChildren(say(TITLES[kind] ?? TITLES[slug ? "known" : "unknown"]), quote);
    if (kind === "healthy") return;
    if (!slug) {
      const nodes = siteSearch.load().then((find) => siteSearch.missing(text, find(text), siteSearch.addressOf));
      nodes.then((found) => result.append(...found), () => result.append(say("No entry has this message.")));
      return;
    }
    const item = document.querySelector(`.failure-index a[href="${slug}.html"]`).closest("li"); // on this page
    result.append(...item.cloneNode(true).childNodes);
    result.querySelector(".failure-fix").prepend("Fix: ");
  }

  box.innerHTML = `
    <form class="paste-form">
      <label for="paste-text">Paste your log</label>
      <textarea id="paste-text" rows="6" spellcheck="false" autocomplete="off" aria-describedby="paste-help"
        placeholder="0: Traceback (most recent call last): …"></textarea>
      <p id="paste-help">Nothing is sent: your browser compares it with the messages below.
        <code class="literal">srunbook explain LOG...</code> also reads several logs, and names rank and node.</p>
      <div class="paste-actions">
        <button type="submit" class="paste-main">Find the cause</button>
        <label class="paste-choose"><input type="file" accept=".log,.out,.err,.txt"> Choose a log file</label>
        <button type="reset">Clear</button>
      </div>
    </form>
    <div class="paste-result" role="status"></div>`;
  const [form, area, file] = ["form", "textarea", "input"].map((name) => box.querySelector(name));
  const start = () => show(area.value);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  form.addEventListener("reset", () => box.querySelector(".paste-result").replaceChildren());
  area.addEventListener("paste", () => setTimeout(start)); // when the field holds the text
  file.addEventListener("change", async () => {
    if (file.files.length) show(await file.files[0].text());
  });
})();
