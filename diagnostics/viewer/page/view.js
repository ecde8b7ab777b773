"use strict";
// Problems on the left, the answers of two checkpoints on the right. Untrusted text becomes text nodes, never markup.

const BUNDLED = document.documentElement.hasAttribute("data-bundle");
const FIRST_ROWS = 200, PAGE = 10, PART = 100;
const $ = (id) => document.getElementById(id);
const createElement = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
};
const number = (n) => n.toLocaleString("en-US");
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
const percent = (part, whole) => `${Math.round((100 * part) / Math.max(whole, 1))} %`;
// The content security policy forbids style attributes, but not properties set by a script.
const setShare = (element, share) => {
  element.style.setProperty("--share", share);
  return element;
};

// ---------------------------------------------------------------- requests

const waiting = new Map(), kept = new Map();
// In a static copy all data are scripts: a browser loads no other files from disk.
window.oversharpData = (name, value) => waiting.get(name)(value);
const loadCopied = (name) => {
  if (!kept.has(name)) {
    kept.set(name, new Promise((resolve, reject) => {
      waiting.set(name, resolve);
      const script = createElement("script", { src: `data/${name}.js` });
      script.addEventListener("error", () => reject(Error(`data/${name}.js is missing from this copy`)));
      document.head.append(script);
    }));
  }
  return kept.get(name);
};
const requestFromCopy = async (name, query) => {
  if (name === "start" || name === "problems") return loadCopied(name);
  const place = (await loadCopied("problems")).problems.findIndex((entry) => entry.problem_id === query.problem);
  if (place < 0) throw Error("this copy does not contain that problem");
  const data = await loadCopied(`problem-${place}`), low = query.q.toLowerCase();
  if (name === "problem") return low ? copiedWithHits(data, low) : data.problem;
  const id = `${query.at}:${query.response}`, response = data.responses[id];
  if (!response) throw Error("this copy does not contain the full text of that response");
  if (name === "turns") return (await loadCopied(data.turn_files[id])).slice(query.start - 1, query.start - 1 + PART);
  return response.trajectory ? { ...response, trajectory: { ...response.trajectory, hits: low ? findHits(await copiedTurns(data, id), low) : [] } } : response;
};
const copiedTurns = async (data, id) => {
  const { trajectory } = data.responses[id];
  return id in data.turn_files ? loadCopied(data.turn_files[id]) : [...trajectory.first, ...trajectory.last];
};
const copiedPlaces = async (data, id, low) => {
  const response = data.responses[id];
  if (!response) return [];
  if (response.trajectory) return findHits(await copiedTurns(data, id), low).map(({ place }) => place);
  return (response.before + response.answer + response.after).toLowerCase().includes(low) ? ["text"] : [];
};
const copiedWithHits = async (data, low) => {
  const found = {};
  for (const id of Object.keys(data.responses)) found[id] = await copiedPlaces(data, id, low);
  const inSide = (side) => (response) => {
    const id = `${side.key}:${response.response_id}`, places = found[id] ?? [];
    return { ...response, hit: places.length > 0, places: data.responses[id]?.trajectory ? places : [] };
  };
  const sides = data.problem.sides.map((side) => ({
    ...side,
    answers: side.answers.map((group) => ({ ...group, responses: group.responses.map(inSide(side)).sort((first, second) => second.hit - first.hit) })),
  }));
  return { ...data.problem, sides };
};
const request = async (name, query = {}) => {
  if (BUNDLED) return requestFromCopy(name, query);
  let answer;
  try {
    answer = await fetch(`api/${name}?${new URLSearchParams(query)}`);
  } catch {
    throw Error("no connection: oversharp view has stopped; start it again and open the address that it prints");
  }
  const body = await answer.json();
  if (!answer.ok) throw Error(body.error);
  return body;
};

// ---------------------------------------------------------------- state, stored in the link

const state = { series: "", a: "", b: "", only: "all", q: "", p: "", r: "", answers: "all", heat: "", turns: "" };
const DEFAULTS = { only: "all", q: "", p: "", r: "", answers: "all", heat: "", turns: "" };
let start, linkError = "", listed = { problems: [], names: ["", ""] }, shown = [], hits = null, problem = null, rendered = 0;
const latest = { list: 0, search: 0, problem: 0 };

const readHash = () => {
  const params = new URLSearchParams(location.hash.slice(1));
  const chosen = start.selection;
  Object.assign(state, DEFAULTS, {
    series: chosen.series, a: chosen.before, b: chosen.after, only: chosen.only, q: BUNDLED ? "" : chosen.search,
  });
  for (const name of Object.keys(state)) if (params.has(name)) state[name] = params.get(name);
  linkError = repairState(chosen);
};
// A link may be older than the store. Replace a series or checkpoint that is missing, and return a message about it.
const repairState = (chosen) => {
  const own = start.series.find((series) => series.name === state.series);
  if (!own) {
    const message = `There is no series ${state.series} here; showing ${chosen.series}.`;
    Object.assign(state, { series: chosen.series, a: chosen.before, b: chosen.after, r: "" });
    return message;
  }
  const keys = own.checkpoints.map((checkpoint) => checkpoint.key);
  const missing = [state.a, state.b].filter((key) => !keys.includes(key));
  if (!missing.length) return "";
  Object.assign(state, { a: keys[0], b: keys[keys.length - 1], r: "" });
  return `${own.name} has no checkpoint ${missing.join(" or ")} here; showing its first and last.`;
};
const writeHash = (isNew = false) => {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== DEFAULTS[name]) params.set(name, value);
  const address = `#${params}`;
  if (address !== location.hash) history[isNew ? "pushState" : "replaceState"](null, "", address);
};
const pair = () => ({ series: state.series, a: state.a, b: state.b });

// ---------------------------------------------------------------- the head

const fill = (select, options, value) => {
  select.replaceChildren(...options.map(([key, name]) => createElement("option", { value: key }, name)));
  select.value = value;
  select.disabled = options.length < 2 || BUNDLED;
};
const showHead = () => {
  const own = start.series.find((series) => series.name === state.series) || start.series[0];
  const points = own.checkpoints.map(({ key, name, checkpoint }) => [key, name === checkpoint ? name : `${name} · ${checkpoint}`]);
  fill($("series"), start.series.map(({ name }) => [name, name]), state.series);
  fill($("a"), points, state.a);
  fill($("b"), points, state.b);
  $("store").textContent = start.store;
  document.title = `${state.series} · ${start.store}`;
};

// ---------------------------------------------------------------- the list

const some = (counts) => counts.some((count) => count > 0);
// The same rules as filter_problems in listing.py.
const RULES = {
  all: ["all", () => true],
  lost: ["lost", (entry) => entry.state === "lost"],
  gained: ["gained", (entry) => entry.state === "gained"],
  fell: ["fell", (entry) => entry.state === "lost" || entry.state === "fell"],
  rose: ["rose", (entry) => entry.state === "gained" || entry.state === "rose"],
  sure: ["significant", (entry) => entry.sure],
  lenient: ["lenient grades", (entry) => some(entry.lenient)],
  cut: ["truncated", (entry) => some(entry.cut)],
};
const MEANINGS = {
  all: "All problems that both checkpoints have samples of", lost: "Some correct samples at A, none at B", gained: "No correct samples at A, some at B",
  fell: "Solved less often at B, including lost problems", rose: "Solved more often at B, including gained problems",
  sure: "Significant change by an exact test, corrected for the number of problems",
  lenient: "Problems with doubtful accepted responses: several different \\boxed answers, or rejected by the problem's own verifier",
  cut: "Problems with responses truncated by the token limit",
};
const showOnly = () => {
  const isKnown = { lenient: (entry) => entry.lenient.some((n) => n !== null), cut: (entry) => entry.cut.some((n) => n !== null) };
  $("only").replaceChildren(...Object.entries(RULES).map(([name, [label, rule]]) => {
    const hasCounts = !isKnown[name] || listed.problems.some(isKnown[name]);
    const count = hasCounts ? number(listed.problems.filter(rule).length) : "unknown";
    const button = createElement("button", {
      type: "button", "aria-pressed": String(state.only === name), title: MEANINGS[name], "data-only": name,
    }, `${label} `, createElement("span", { class: "n" }, count));
    button.addEventListener("click", () => {
      state.only = name;
      applyFilters();
    });
    return button;
  }));
};
const bars = (entry) => createElement("span", { class: "bars", "aria-hidden": "true" },
  ...[0, 1].map((side) => setShare(createElement("i"), entry.correct[side] / entry.n[side])));
const changeLabel = (entry) => (entry.sure ? `${entry.state} (significant)` : entry.state);
const listItem = (entry, place) => {
  const counts = [0, 1].map((side) => `${number(entry.correct[side])}/${number(entry.n[side])}`).join(" → ");
  const element = createElement("li", {
    role: "option", id: `o${place}`, "aria-selected": String(entry.problem_id === state.p), "aria-setsize": shown.length, "aria-posinset": place + 1,
  },
  createElement("span", { class: "title" }, entry.title || entry.problem),
  createElement("span", { class: "facts" }, bars(entry), createElement("span", { class: "counts" }, counts),
    createElement("span", { class: `state ${entry.state}` }, changeLabel(entry)),
    createElement("span", { class: "id" }, entry.problem)));
  element.addEventListener("click", () => choose(place, { isNew: true, open: true }));
  return element;
};
const renderUpTo = (wanted) => {
  const until = Math.min(shown.length, wanted);
  if (until > rendered) $("list").append(...shown.slice(rendered, until).map((entry, i) => listItem(entry, rendered + i)));
  rendered = Math.max(rendered, until);
};
const applyFilters = () => {
  const [, rule] = RULES[state.only] || RULES.all;
  shown = listed.problems.filter((entry) => rule(entry) && (hits === null || hits.has(entry.problem_id)));
  for (const button of $("only").children) button.setAttribute("aria-pressed", String(button.dataset.only === state.only));
  rendered = 0;
  $("list").replaceChildren();
  renderUpTo(FIRST_ROWS);
  const place = shown.findIndex((entry) => entry.problem_id === state.p);
  if (place >= 0) mark(place);
  else if (shown.length && !narrow()) choose(0, {});
  else if (!shown.length) showMessage("No problem matches these filters.");
  writeHash();
  showCount();
};
const showCount = (progress = "") => {
  const of = shown.length === listed.problems.length ? "" : ` of ${number(listed.problems.length)}`;
  $("count").textContent = `${number(shown.length)}${of} ${listed.problems.length === 1 ? "problem" : "problems"}${progress}`;
};
const mark = (place) => {
  renderUpTo(place + 50);
  for (const option of $("list").querySelectorAll("[aria-selected=true]")) option.setAttribute("aria-selected", "false");
  const element = $(`o${place}`);
  element.setAttribute("aria-selected", "true");
  $("list").setAttribute("aria-activedescendant", element.id);
  element.scrollIntoView({ block: "nearest" });
};
const choose = (place, { isNew = false, open = false }) => {
  const other = shown[place].problem_id !== state.p;
  if (other) Object.assign(state, { p: shown[place].problem_id, r: "" });
  mark(place);
  if (open && narrow()) document.body.dataset.pane = "problem";
  writeHash(isNew && other);
  if (other || !problem) showProblem();
};
const placeNow = () => shown.findIndex((entry) => entry.problem_id === state.p);
const narrow = () => matchMedia("(max-width: 800px)").matches;

// ---------------------------------------------------------------- search

const search = async () => {
  const own = ++latest.search, text = state.q;
  if (!text) {
    hits = null;
    return applyFilters();
  }
  hits = new Set();
  if (BUNDLED) {
    await searchCopy(own, text.toLowerCase());
    if (own === latest.search && state.p) showProblem();
    return;
  }
  let next = 0;
  while (next !== null) {
    const part = await request("search", { ...pair(), q: text, start: next });
    if (own !== latest.search) return;
    const before = hits.size;
    part.problem_ids.forEach((id) => hits.add(id));
    if (hits.size !== before || next === 0) applyFilters();
    next = part.next;
    showCount(next === null ? "" : ` · ${percent(part.done, part.total)} of the responses searched`);
  }
  if (state.p) showProblem(); // list responses with the text first
};

const searchCopy = async (own, low) => {
  for (const [place, entry] of listed.problems.entries()) {
    const data = await loadCopied(`problem-${place}`);
    if (own !== latest.search) return;
    let isHit = [data.problem.prompt, data.problem.gold, entry.problem].join("\n").toLowerCase().includes(low) || entry.problem_id.startsWith(low);
    for (const id of Object.keys(data.responses)) isHit ||= (await copiedPlaces(data, id, low)).length > 0;
    if (isHit) hits.add(entry.problem_id);
  }
  if (own === latest.search) applyFilters();
};

// ---------------------------------------------------------------- a problem

const showMessage = (text, isError = false) => {
  problem = null;
  $("problem").replaceChildren(createElement("p", { class: isError ? "error" : "note", role: isError ? "alert" : null }, text));
};
const showProblem = async () => {
  const own = ++latest.problem;
  try {
    const answer = await request("problem", { ...pair(), q: state.q, problem: state.p });
    if (own !== latest.problem) return;
    problem = answer;
    renderProblem();
  } catch (error) {
    if (own === latest.problem) showMessage(error.message, true);
  }
};
const trajectoryBars = () => createElement("div", {
  class: "course", role: "img",
  "aria-label": `Correct samples: ${problem.course.map((point) => `${point.name} ${point.n_correct} of ${point.n}`).join(", ")}`,
  }, ...problem.course.map((point) => setShare(createElement("i", {
  class: point.key === state.a || point.key === state.b ? "here" : null, title: `${point.name}: ${point.n_correct} of ${point.n} correct`,
  }), point.n_correct / point.n)));
const renderProblem = () => {
  const entry = listed.problems.find(({ problem_id }) => problem_id === problem.problem_id);
  const back = createElement("button", { type: "button", class: "back" }, "‹ Problems");
  back.addEventListener("click", () => {
    document.body.dataset.pane = "list";
    $("list").focus();
  });
  const answers = createElement("select", { id: "answers" }, ...[["all", "all"], ["a", "only in A"], ["b", "only in B"]]
    .map(([value, text]) => createElement("option", { value }, text)));
  answers.value = state.answers;
  answers.addEventListener("change", () => {
    state.answers = answers.value;
    writeHash();
    renderSides();
  });
  const prompt = createElement("pre", { class: "prompt", tabindex: "0", "aria-label": "Prompt" });
  prompt.append(...withHits(problem.prompt));
  $("problem").replaceChildren(
    back,
    createElement("div", { class: "about" },
      createElement("h2", {}, problem.problem),
      entry ? createElement("span", { class: `state ${entry.state}` }, changeLabel(entry)) : null,
      createElement("span", { class: "note" }, `${problem.task && `${problem.task} · `}graded by ${problem.grader}`)),
    prompt,
    createElement("div", { class: "facts" },
      createElement("span", { class: "gold" }, "gold answer ", createElement("code", {}, problem.gold)),
      createElement("span", { class: "note" }, "correct samples by checkpoint ", trajectoryBars()),
      createElement("label", {}, "answers ", answers)),
    createElement("div", { id: "pair", hidden: true }),
    createElement("div", { id: "sides" }),
  );
  renderSides();
  $("problem").scrollTop = 0;
};
const only = (side, group) => !problem.sides[1 - side].answers.some((other) => other.answer === group.answer && other.correct === group.correct);
const renderSides = () => {
  opened = [null, null];
  renderPair();
  $("sides").replaceChildren(...problem.sides.map((side, place) => {
    const letter = "AB"[place], wanted = state.answers === "all" || state.answers === letter.toLowerCase();
    const groups = side.answers.filter((group) => state.answers === "all" || (wanted && only(place, group)));
    const nAnswers = side.answers.length;
    return createElement("section", { class: "side", "aria-label": `${letter}: ${side.name}` },
      createElement("h3", {}, createElement("b", {}, letter), ` ${side.name} `, createElement("span", { class: "note" },
        `${number(side.n_correct)} of ${number(side.n)} correct · ${plural(nAnswers, "answer")}`)),
      ...groups.map((group) => answerGroup(group, side, place)),
      groups.length ? null : createElement("p", { class: "note" }, wanted ? `No answer occurs only in ${letter}.` : "Hidden by the answer filter."));
  }));
  openFirst();
};
const chip = (text, kind = "") => createElement("span", { class: `chip ${kind}` }, text);
const answerGroup = (group, side, place) => {
  const box = createElement("div", { class: `group ${group.correct ? "correct" : "wrong"}` });
  const row = createElement("button", { type: "button", class: "row answer", "aria-expanded": "false" },
    createElement("span", { class: "n" }, `${number(group.n)}×`),
    setShare(createElement("span", { class: "share", "aria-hidden": "true" }), group.n / Math.max(side.n, 1)),
    createElement("span", { class: "mark" }, group.correct ? "✓" : "✗", createElement("span", { class: "unseen" }, group.correct ? "correct" : "wrong")),
    group.answer === null ? createElement("span", { class: "text none" }, "unparsed") : createElement("code", { class: "text" }, group.answer),
    only(place, group) ? chip(`only in ${"AB"[place]}`, "alone") : null);
  const inside = createElement("div", { class: "responses", hidden: true });
  row.addEventListener("click", () => {
    if (!inside.childElementCount) inside.append(...responseRows(group, side));
    inside.hidden = !inside.hidden;
    row.setAttribute("aria-expanded", String(!inside.hidden));
  });
  box.append(row, inside);
  box.group = group;
  box.side = side;
  return box;
};
const responseRows = (group, side) => {
  const rows = group.responses.flatMap((response) => {
    const row = createElement("button", { type: "button", class: "row response", "aria-expanded": "false", "data-id": `${side.key}:${response.response_id}` },
      createElement("span", { class: "n" }, response.n ? `${number(response.n)}×` : ""),
      createElement("span", { class: "text" }, response.preview || "(empty)"),
      response.hit ? chip(["match", response.places.join(", ")].filter(Boolean).join(" in ")) : null, response.cut ? chip("truncated", "warn") : null, response.greedy ? chip("greedy") : null,
      response.why ? chip(response.why.split(":")[0].replace("_", " "), "warn") : null, response.lenient ? chip("lenient", "warn") : null);
    const full = createElement("div", { class: "full", hidden: true });
    row.addEventListener("click", () => openResponse(row, full, response, side));
    return [row, full];
  });
  const left = group.n_responses - group.responses.length;
  if (left > 0) rows.push(createElement("p", { class: "note" }, `${plural(left, "more distinct response")} ${BUNDLED ? "not in this copy" : "not listed"}.`));
  return rows;
};
const openResponse = async (row, full, listedResponse, side, inLink = true) => {
  full.hidden = !full.hidden;
  row.setAttribute("aria-expanded", String(!full.hidden));
  if (inLink) {
    const ofOtherSide = state.r.split(",").filter((id) => id && !id.startsWith(`${side.key}:`));
    state.r = [...ofOtherSide, ...(full.hidden ? [] : [row.dataset.id])].join(",");
    writeHash();
  }
  const place = problem.sides.indexOf(side);
  if (full.hidden) {
    if (opened[place]?.full === full) noteOpened(place, null);
    return;
  }
  if (full.childElementCount) {
    if (full.opened) noteOpened(place, full.opened);
    return;
  }
  try {
    const query = { ...pair(), q: state.q, problem: problem.problem_id, at: side.key, response: listedResponse.response_id };
    const fullResponse = await request("response", query);
    full.opened = { full, query, response: fullResponse, name: `${side.name} · sample ${listedResponse.sample_index}` };
    renderFull(full, listedResponse, fullResponse);
    if (!full.hidden && full.isConnected) noteOpened(place, full.opened);
  } catch (error) {
    full.replaceChildren(createElement("p", { class: "error", role: "alert" }, error.message));
  }
};
// Open one response per side: the linked one, else a search match, else in A a correct one, else the most frequent.
const openFirst = () => {
  const linked = state.r.split(",");
  for (const [place, element] of [...document.querySelectorAll(".side")].entries()) {
    const groups = [...element.querySelectorAll(".group")];
    const named = groups.find((box) => box.group.responses.some((response) => linked.includes(`${box.side.key}:${response.response_id}`)));
    const hit = state.q && groups.find((box) => box.group.responses.some((response) => response.hit));
    const first = named || hit || (place === 0 && groups.find((box) => box.group.correct)) || groups[0];
    if (!first) continue;
    first.firstElementChild.click();
    const rows = [...first.querySelectorAll(".response")];
    const row = (named && rows.find((candidate) => linked.includes(candidate.dataset.id))) || rows[0];
    if (!row) continue;
    const response = first.group.responses[rows.indexOf(row)];
    openResponse(row, row.nextElementSibling, response, first.side, false);
    if (named) row.scrollIntoView({ block: "nearest" });
  }
};

// ---------------------------------------------------------------- a response in full

const withHits = (text) => {
  const parts = [], wanted = state.q.toLowerCase(), low = text.toLowerCase();
  let from = 0;
  // a letter whose lower case is longer shifts all later positions: show no hits then
  for (let at = wanted && low.length === text.length ? low.indexOf(wanted) : -1; at >= 0; at = low.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), createElement("mark", { class: "hit" }, text.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  return [...parts, text.slice(from)];
};
const plainText = (response, label = "Response") => {
  const box = createElement("pre", { tabindex: "0", "aria-label": label }, ...withHits(response.before));
  if (response.answer) box.append(createElement("mark", { class: "read", title: "extracted answer" }, ...withHits(response.answer)));
  box.append(...withHits(response.after));
  return box;
};
// Thresholds of the heat colours: probability (from likely to unlikely) and entropy in nats (from low to high).
const STEPS = { logp: [0.9, 0.5, 0.1, 0.01], entropy: [0.1, 0.5, 1, 2] };
const heatOf = (kind, value) => {
  if (kind === "entropy") return value === null ? 4 : STEPS.entropy.filter((edge) => value >= edge).length;
  return value === null ? 4 : STEPS.logp.filter((edge) => Math.exp(value) < edge).length;
};
const LEGENDS = { logp: ["p ≥ 0.9", "≥ 0.5", "≥ 0.1", "≥ 0.01", "less"], entropy: ["below 0.1 nats", "0.1", "0.5", "1", "2 and more"] };
const heatText = (response, kind, score) => {
  const values = kind === "logp" ? score.logps : score.entropies;
  const whole = response.before + response.answer + response.after;
  const first = response.before.length, last = first + response.answer.length;
  const fits = response.pieces.length === values.length && response.pieces.join("").startsWith(whole);
  let from = 0;
  const box = createElement("pre", { tabindex: "0", class: "heated", "aria-label": "Response, token by token" });
  values.forEach((value, i) => {
    const piece = response.pieces.length ? response.pieces[i] : `${response.token_ids[i] ?? "?"} `;
    const until = from + piece.length;
    const inside = fits && response.answer && from < last && until > first;
    const logp = score.logps[i], entropy = score.entropies[i] ?? null;
    const p = logp === null ? "0" : Math.exp(logp).toPrecision(3);
    box.append(createElement("span", {
      class: `t h${heatOf(kind, value)}${inside ? " read" : ""}`,
      title: `p ${p}, log-probability ${logp === null ? "−∞" : logp} nats, entropy ${entropy === null ? "unknown" : `${entropy} nats`}`,
    }, piece));
    from = until;
  });
  return box;
};
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const summary = (score) => {
  const finite = score.logps.filter((logp) => logp !== null);
  return `${score.name}: ${finite.length === score.logps.length && finite.length ? `${mean(finite).toFixed(3).replace("-", "−")} nats per token` : "probability 0"}`;
};
const heats = (response) => response.scores.flatMap((score) => [
  [`logp:${score.name}`, `probability under ${score.name}`],
  ...(score.entropies.length ? [[`entropy:${score.name}`, `entropy under ${score.name}`]] : []),
]);
const renderFull = (full, listedResponse, response) => {
  const facts = [`sample ${listedResponse.sample_index}`];
  if (listedResponse.n_tokens !== null) facts.push(plural(listedResponse.n_tokens, "token"));
  if (listedResponse.cut) facts.push("truncated by the token limit");
  if (listedResponse.greedy) facts.push("greedy response");
  if (listedResponse.why) facts.push(listedResponse.why);
  if (listedResponse.lenient) facts.push(listedResponse.lenient);
  if (response.trajectory) facts.push(...trajectoryFacts(response.trajectory));
  const meta = createElement("div", { class: "meta" }, createElement("span", {}, facts.join(" · ")));
  full.replaceChildren(meta);
  const choices = heats(response);
  if (choices.length) {
    const select = createElement("select", { class: "heat" }, createElement("option", { value: "" }, "none"),
      ...choices.map(([value, text]) => createElement("option", { value }, text)));
    select.value = choices.some(([value]) => value === state.heat) ? state.heat : "";
    select.addEventListener("change", () => setHeat(select.value));
    meta.append(createElement("label", {}, "token colours ", select), createElement("span", {}, response.scores.map(summary).join(" · ")));
  }
  full.responses = [listedResponse, response];
  const [kind, ...name] = state.heat.split(":");
  const score = response.scores.find((each) => each.name === name.join(":"));
  if (score) {
    full.append(createElement("p", { class: "legend" }, ...LEGENDS[kind].map((text, i) => createElement("span", { class: `t h${i}` }, text))), heatText(response, kind, score));
    if (response.why_no_pieces) full.append(createElement("p", { class: "note" }, `Showing token ids: ${response.why_no_pieces}.`), plainText(response));
    return;
  }
  if (state.heat) full.append(createElement("p", { class: "note" }, `No token colours: ${response.why_no_scores || "the response was not scored under that checkpoint"}.`));
  if (response.trajectory) renderTrajectory(full, response.trajectory, full.opened.query);
  else full.append(plainText(response));
};
const setHeat = (heat) => {
  const active = document.activeElement, inFull = active && active.closest && active.closest(".full");
  state.heat = heat;
  writeHash();
  for (const full of document.querySelectorAll(".full")) if (full.responses) renderFull(full, ...full.responses);
  if (inFull) inFull.querySelector("select.heat")?.focus();
};
const nextHeat = () => {
  const all = [...new Set([...document.querySelectorAll(".full")].flatMap((full) => (full.responses ? heats(full.responses[1]).map(([value]) => value) : [])))];
  if (all.length) setHeat(["", ...all][(all.indexOf(state.heat) + 2) % (all.length + 1)]);
};

// ---------------------------------------------------------------- keys

const rowsOf = (side) => [...side.querySelectorAll(".row")].filter((row) => row.offsetParent !== null);
const focusSide = (place, from = null) => {
  const side = document.querySelectorAll(".side")[place];
  const rows = side ? rowsOf(side) : [];
  if (!rows.length) return false;
  const top = from ? from.getBoundingClientRect().top : -Infinity;
  (rows.find((row) => row.getBoundingClientRect().top >= top) || rows[0]).focus();
  return true;
};
const inList = (event) => {
  const now = placeNow(), last = shown.length - 1;
  const moves = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: last, PageDown: now + PAGE, PageUp: now - PAGE };
  if (event.key in moves && last >= 0) choose(Math.min(last, Math.max(0, moves[event.key])), {});
  else if ((event.key === "ArrowRight" || event.key === "Enter") && problem) {
    if (narrow()) document.body.dataset.pane = "problem";
    focusSide(0) || focusSide(1);
  } else return;
  event.preventDefault();
};
const inRows = (event, row) => {
  const side = row.closest(".side"), rows = rowsOf(side), at = rows.indexOf(row);
  const isA = side === document.querySelector(".side");
  if (event.key === "ArrowDown") rows[Math.min(at + 1, rows.length - 1)].focus();
  else if (event.key === "ArrowUp") rows[Math.max(at - 1, 0)].focus();
  else if (event.key === "ArrowRight" && isA) focusSide(1, row);
  else if (event.key === "ArrowLeft" && !isA) focusSide(0, row);
  else if (event.key === "ArrowLeft" || event.key === "Escape") {
    document.body.dataset.pane = "list";
    $("list").focus();
  } else return;
  event.preventDefault();
};
const toggleKeys = () => {
  $("keys").hidden = !$("keys").hidden;
  $("help").setAttribute("aria-expanded", String(!$("keys").hidden));
};
const LETTERS = {
  "/": () => {
    document.body.dataset.pane = "list";
    $("q").focus();
  },
  "?": toggleKeys,
  h: nextHeat,
  t: () => {
    if (isPair()) togglePair();
  },
  o: () => {
    if (!problem) return;
    state.answers = { all: "a", a: "b", b: "all" }[state.answers];
    $("answers").value = state.answers;
    writeHash();
    renderSides();
  },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === $("q")) {
    if (["ArrowDown", "Enter", "Escape"].includes(event.key)) {
      $("list").focus();
      event.preventDefault();
    }
    return;
  }
  if (event.target.matches("select, input")) return;
  if (event.target === $("list")) inList(event);
  else if (event.target.matches(".row")) inRows(event, event.target);
  if (!event.defaultPrevented && event.key in LETTERS) {
    LETTERS[event.key]();
    event.preventDefault();
  }
});

// ---------------------------------------------------------------- start

const showList = async () => {
  const own = ++latest.list;
  showHead();
  if (state.a === state.b) return showMessage("A and B are the same checkpoint; choose another.", true);
  try {
    const answer = await request("problems", pair());
    if (own !== latest.list) return;
    listed = answer;
    problem = null;
    const problemId = state.p;
    showOnly();
    for (const note of $("left").querySelectorAll(".notes")) note.remove();
    if (linkError) $("list").before(createElement("p", { class: "notes", role: "alert" }, linkError));
    const notes = [start.note, answer.sentence, ...answer.notes].filter(Boolean);
    $("list").before(createElement("details", { class: "notes" }, createElement("summary", {}, "Summary of changes"), ...notes.map((text) => createElement("p", {}, text))));
    if (problemId && listed.problems.some((entry) => entry.problem_id === problemId)) showProblem();
    else state.p = "";
    await search();
  } catch (error) {
    if (own === latest.list) showMessage(error.message, true);
  }
};
const changed = () => {
  linkError = "";
  Object.assign(state, { series: $("series").value, a: $("a").value, b: $("b").value, r: "" });
  showList();
};
$("series").addEventListener("change", () => {
  const own = start.series.find(({ name }) => name === $("series").value).checkpoints.map(({ key }) => key);
  linkError = "";
  Object.assign(state, { series: $("series").value, a: own[0], b: own[own.length - 1], r: "" });
  showList();
});
$("a").addEventListener("change", changed);
$("b").addEventListener("change", changed);
let typed = 0;
$("q").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => {
    state.q = $("q").value.trim();
    writeHash();
    search().catch((error) => showMessage(error.message, true));
  }, 150);
});
$("list").addEventListener("scroll", () => {
  if ($("list").scrollTop + $("list").clientHeight > $("list").scrollHeight - 800) renderUpTo(rendered + FIRST_ROWS);
});
$("help").addEventListener("click", toggleKeys);
$("copy").addEventListener("click", async () => {
  writeHash();
  try {
    await navigator.clipboard.writeText(location.href);
    $("copy").textContent = "Copied";
  } catch {
    $("copy").textContent = "Copy the link from the address bar";
  }
  setTimeout(() => ($("copy").textContent = "Copy link"), 2000);
});
addEventListener("popstate", () => begin());
const begin = () => {
  readHash();
  $("q").value = state.q;
  document.body.dataset.pane = state.p && location.hash ? "problem" : "list";
  showList();
};
(async () => {
  try {
    start = await request("start");
    begin();
    if (!narrow()) $("list").focus();
  } catch (error) {
    showMessage(error.message, true);
  }
})();
