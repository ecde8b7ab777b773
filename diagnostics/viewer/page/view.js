"use strict";
// Problems on the left, the answers of two checkpoints on the right. Texts of strangers become text nodes, never markup.

const BUNDLED = document.documentElement.hasAttribute("data-bundle");
const FIRST_ROWS = 200, PAGE = 10;
const $ = (id) => document.getElementById(id);
const made = (tag, attributes = {}, ...children) => {
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
// The policy forbids style attributes; a property that a script sets is none.
const sized = (element, share) => {
  element.style.setProperty("--share", share);
  return element;
};

// ---------------------------------------------------------------- questions

const waiting = new Map(), kept = new Map();
// In a static copy every answer is a script: from disk a browser reads nothing else.
window.oversharpData = (name, value) => waiting.get(name)(value);
const copied = (name) => {
  if (!kept.has(name)) {
    kept.set(name, new Promise((resolve, reject) => {
      waiting.set(name, resolve);
      const script = made("script", { src: `data/${name}.js` });
      script.addEventListener("error", () => reject(Error(`data/${name}.js is missing from this copy`)));
      document.head.append(script);
    }));
  }
  return kept.get(name);
};
const ofCopy = async (name, query) => {
  if (name === "start" || name === "problems") return copied(name);
  const place = (await copied("problems")).problems.findIndex((one) => one.problem_id === query.problem);
  if (place < 0) throw Error("this copy does not have that problem");
  const held = await copied(`problem-${place}`);
  const found = name === "problem" ? held.problem : held.responses[`${query.at}:${query.response}`];
  if (!found) throw Error("this copy does not have that response in full");
  return found;
};
const ask = async (name, query = {}) => {
  if (BUNDLED) return ofCopy(name, query);
  let answer;
  try {
    answer = await fetch(`api/${name}?${new URLSearchParams(query)}`);
  } catch {
    throw Error("nothing answers: oversharp view has ended; start it again and open the address that it prints");
  }
  const body = await answer.json();
  if (!answer.ok) throw Error(body.error);
  return body;
};

// ---------------------------------------------------------------- state, which a link holds

const state = { series: "", a: "", b: "", only: "all", q: "", p: "", r: "", answers: "all", heat: "" };
const DEFAULTS = { only: "all", q: "", p: "", r: "", answers: "all", heat: "" };
let start, gone = "", listed = { problems: [], names: ["", ""] }, shown = [], hits = null, problem = null, rendered = 0;
const turns = { list: 0, search: 0, problem: 0 };

const readHash = () => {
  const held = new URLSearchParams(location.hash.slice(1));
  const chosen = start.selection;
  Object.assign(state, DEFAULTS, {
    series: chosen.series, a: chosen.before, b: chosen.after, only: chosen.only, q: BUNDLED ? "" : chosen.search,
  });
  for (const name of Object.keys(state)) if (held.has(name)) state[name] = held.get(name);
  gone = mended(chosen);
};
// A link may be older than the store: what it names and nobody has is said, and what there is is shown.
const mended = (chosen) => {
  const own = start.series.find((one) => one.name === state.series);
  if (!own) {
    const said = `There is no series ${state.series} here: ${chosen.series} is shown.`;
    Object.assign(state, { series: chosen.series, a: chosen.before, b: chosen.after, r: "" });
    return said;
  }
  const keys = own.checkpoints.map((one) => one.key);
  const missing = [state.a, state.b].filter((key) => !keys.includes(key));
  if (!missing.length) return "";
  Object.assign(state, { a: keys[0], b: keys[keys.length - 1], r: "" });
  return `${own.name} has no checkpoint ${missing.join(" or ")} here: its first and its last are shown.`;
};
const writeHash = (isNew = false) => {
  const held = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== DEFAULTS[name]) held.set(name, value);
  const address = `#${held}`;
  if (address !== location.hash) history[isNew ? "pushState" : "replaceState"](null, "", address);
};
const pair = () => ({ series: state.series, a: state.a, b: state.b });

// ---------------------------------------------------------------- the head

const fill = (select, options, value) => {
  select.replaceChildren(...options.map(([key, name]) => made("option", { value: key }, name)));
  select.value = value;
  select.disabled = options.length < 2 || BUNDLED;
};
const showHead = () => {
  const own = start.series.find((one) => one.name === state.series) || start.series[0];
  const points = own.checkpoints.map((one) => [one.key, one.name === one.checkpoint ? one.name : `${one.name} · ${one.checkpoint}`]);
  fill($("series"), start.series.map((one) => [one.name, one.name]), state.series);
  fill($("a"), points, state.a);
  fill($("b"), points, state.b);
  $("store").textContent = start.store;
  document.title = `${state.series} · ${start.store}`;
};

// ---------------------------------------------------------------- the list

const some = (counts) => counts.some((one) => one > 0);
// The same rules as in listing.py.
const RULES = {
  all: ["all", () => true],
  lost: ["lost", (one) => one.state === "lost"],
  gained: ["gained", (one) => one.state === "gained"],
  fell: ["fell", (one) => one.state === "lost" || one.state === "fell"],
  rose: ["rose", (one) => one.state === "gained" || one.state === "rose"],
  sure: ["surely changed", (one) => one.sure],
  lenient: ["lenient grades", (one) => some(one.lenient)],
  cut: ["cut off", (one) => some(one.cut)],
};
const MEANINGS = {
  all: "All problems that both checkpoints have samples of", lost: "No correct sample is left at B", gained: "A first correct sample at B",
  fell: "Solved less often at B, lost ones included", rose: "Solved more often at B, gained ones included",
  sure: "More than luck, by an exact test corrected for the number of problems",
  lenient: "Accepted responses with several different boxes, or that the problem's own verifier refuses",
  cut: "Responses that the token limit ended",
};
const showOnly = () => {
  const known = { lenient: (one) => one.lenient.some((n) => n !== null), cut: (one) => one.cut.some((n) => n !== null) };
  $("only").replaceChildren(...Object.entries(RULES).map(([name, [label, rule]]) => {
    const told = !known[name] || listed.problems.some(known[name]);
    const count = told ? number(listed.problems.filter(rule).length) : "not told";
    const button = made("button", {
      type: "button", "aria-pressed": String(state.only === name), title: MEANINGS[name], "data-only": name,
    }, `${label} `, made("span", { class: "n" }, count));
    button.addEventListener("click", () => {
      state.only = name;
      applyFilters();
    });
    return button;
  }));
};
const bars = (one) => made("span", { class: "bars", "aria-hidden": "true" },
  ...[0, 1].map((side) => sized(made("i"), one.correct[side] / one.n[side])));
const item = (one, place) => {
  const counts = [0, 1].map((side) => `${number(one.correct[side])}/${number(one.n[side])}`).join(" → ");
  const element = made("li", {
    role: "option", id: `o${place}`, "aria-selected": String(one.problem_id === state.p), "aria-setsize": shown.length, "aria-posinset": place + 1,
  },
  made("span", { class: "title" }, one.title || one.problem),
  made("span", { class: "facts" }, bars(one), made("span", { class: "counts" }, counts),
    made("span", { class: `state ${one.state}` }, one.sure ? `surely ${one.state}` : one.state),
    made("span", { class: "id" }, one.problem)));
  element.addEventListener("click", () => choose(place, { isNew: true, open: true }));
  return element;
};
const renderUpTo = (wanted) => {
  const until = Math.min(shown.length, wanted);
  if (until > rendered) $("list").append(...shown.slice(rendered, until).map((one, i) => item(one, rendered + i)));
  rendered = Math.max(rendered, until);
};
const applyFilters = () => {
  const [, rule] = RULES[state.only] || RULES.all;
  shown = listed.problems.filter((one) => rule(one) && (hits === null || hits.has(one.problem_id)));
  for (const one of $("only").children) one.setAttribute("aria-pressed", String(one.dataset.only === state.only));
  rendered = 0;
  $("list").replaceChildren();
  renderUpTo(FIRST_ROWS);
  const place = shown.findIndex((one) => one.problem_id === state.p);
  if (place >= 0) mark(place);
  else if (shown.length && !narrow()) choose(0, {});
  else if (!shown.length) nothing("No problem passes these filters.");
  writeHash();
  showCount();
};
const showCount = (progress = "") => {
  const of = shown.length === listed.problems.length ? "" : ` of ${number(listed.problems.length)}`;
  $("count").textContent = `${number(shown.length)}${of} ${listed.problems.length === 1 ? "problem" : "problems"}${progress}`;
};
const mark = (place) => {
  renderUpTo(place + 50);
  for (const one of $("list").querySelectorAll("[aria-selected=true]")) one.setAttribute("aria-selected", "false");
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
const placeNow = () => shown.findIndex((one) => one.problem_id === state.p);
const narrow = () => matchMedia("(max-width: 800px)").matches;

// ---------------------------------------------------------------- search

const search = async () => {
  const turn = ++turns.search, text = state.q;
  if (!text) {
    hits = null;
    return applyFilters();
  }
  hits = new Set();
  if (BUNDLED) {
    const low = text.toLowerCase();
    for (const one of listed.problems) if (`${one.title}\n${one.problem}\n${one.problem_id}`.toLowerCase().includes(low)) hits.add(one.problem_id);
    return applyFilters();
  }
  let next = 0;
  while (next !== null) {
    const part = await ask("search", { ...pair(), q: text, start: next });
    if (turn !== turns.search) return;
    const before = hits.size;
    part.problem_ids.forEach((one) => hits.add(one));
    if (hits.size !== before || next === 0) applyFilters();
    next = part.next;
    showCount(next === null ? "" : ` · ${percent(part.done, part.total)} of the responses searched`);
  }
  if (state.p) showProblem(); // its responses with the text come first now
};

// ---------------------------------------------------------------- a problem

const nothing = (text, isError = false) => {
  problem = null;
  $("problem").replaceChildren(made("p", { class: isError ? "error" : "note", role: isError ? "alert" : null }, text));
};
const showProblem = async () => {
  const turn = ++turns.problem;
  try {
    const found = await ask("problem", { ...pair(), q: state.q, problem: state.p });
    if (turn !== turns.problem) return;
    problem = found;
    renderProblem();
  } catch (error) {
    if (turn === turns.problem) nothing(error.message, true);
  }
};
const course = () => made("div", {
  class: "course", role: "img",
  "aria-label": `Correct samples: ${problem.course.map((one) => `${one.name} ${one.n_correct} of ${one.n}`).join(", ")}`,
}, ...problem.course.map((one) => sized(made("i", {
  class: one.key === state.a || one.key === state.b ? "here" : null, title: `${one.name}: ${one.n_correct} of ${one.n} correct`,
}), one.n_correct / one.n)));
const renderProblem = () => {
  const listedOne = listed.problems.find((one) => one.problem_id === problem.problem_id);
  const back = made("button", { type: "button", class: "back" }, "‹ Problems");
  back.addEventListener("click", () => {
    document.body.dataset.pane = "list";
    $("list").focus();
  });
  const answers = made("select", { id: "answers" }, ...[["all", "all"], ["a", "only in A"], ["b", "only in B"]]
    .map(([value, text]) => made("option", { value }, text)));
  answers.value = state.answers;
  answers.addEventListener("change", () => {
    state.answers = answers.value;
    writeHash();
    renderSides();
  });
  const prompt = made("pre", { class: "prompt", tabindex: "0", "aria-label": "Prompt" });
  prompt.append(...withHits(problem.prompt));
  $("problem").replaceChildren(
    back,
    made("div", { class: "about" },
      made("h2", {}, problem.problem),
      listedOne ? made("span", { class: `state ${listedOne.state}` }, listedOne.sure ? `surely ${listedOne.state}` : listedOne.state) : null,
      made("span", { class: "note" }, `${problem.task && `${problem.task} · `}graded by ${problem.grader}`)),
    prompt,
    made("div", { class: "facts" },
      made("span", { class: "gold" }, "gold ", made("code", {}, problem.gold)),
      made("span", { class: "note" }, "correct by checkpoint ", course()),
      made("label", {}, "answers ", answers)),
    made("div", { id: "sides" }),
  );
  renderSides();
  $("problem").scrollTop = 0;
};
const only = (side, group) => !problem.sides[1 - side].answers.some((other) => other.answer === group.answer && other.correct === group.correct);
const renderSides = () => {
  $("sides").replaceChildren(...problem.sides.map((side, place) => {
    const letter = "AB"[place], wanted = state.answers === "all" || state.answers === letter.toLowerCase();
    const groups = side.answers.filter((group) => state.answers === "all" || (wanted && only(place, group)));
    const said = side.answers.length;
    return made("section", { class: "side", "aria-label": `${letter}: ${side.name}` },
      made("h3", {}, made("b", {}, letter), ` ${side.name} `, made("span", { class: "note" },
        `${number(side.n_correct)} of ${number(side.n)} correct · ${plural(said, "answer")}`)),
      ...groups.map((group) => groupOf(group, side, place)),
      groups.length ? null : made("p", { class: "note" }, wanted ? `No answer is ${letter}'s alone.` : "Not shown."));
  }));
  openFirst();
};
const chip = (text, kind = "") => made("span", { class: `chip ${kind}` }, text);
const groupOf = (group, side, place) => {
  const box = made("div", { class: `group ${group.correct ? "correct" : "wrong"}` });
  const row = made("button", { type: "button", class: "row answer", "aria-expanded": "false" },
    made("span", { class: "n" }, `${number(group.n)}×`),
    sized(made("span", { class: "share", "aria-hidden": "true" }), group.n / Math.max(side.n, 1)),
    made("span", { class: "mark" }, group.correct ? "✓" : "✗", made("span", { class: "unseen" }, group.correct ? "correct" : "wrong")),
    group.answer === null ? made("span", { class: "text none" }, "no readable answer") : made("code", { class: "text" }, group.answer),
    only(place, group) ? chip(`only in ${"AB"[place]}`, "alone") : null);
  const inside = made("div", { class: "responses", hidden: true });
  row.addEventListener("click", () => {
    if (!inside.childElementCount) inside.append(...responsesOf(group, side));
    inside.hidden = !inside.hidden;
    row.setAttribute("aria-expanded", String(!inside.hidden));
  });
  box.append(row, inside);
  box.group = group;
  box.side = side;
  return box;
};
const responsesOf = (group, side) => {
  const rows = group.responses.flatMap((one) => {
    const row = made("button", { type: "button", class: "row response", "aria-expanded": "false", "data-id": `${side.key}:${one.response_id}` },
      made("span", { class: "n" }, one.n ? `${number(one.n)}×` : ""),
      made("span", { class: "text" }, one.preview || "(empty)"),
      one.hit ? chip("match") : null, one.cut ? chip("cut off", "warn") : null, one.greedy ? chip("greedy") : null,
      one.why ? chip(one.why.split(":")[0].replace("_", " "), "warn") : null, one.lenient ? chip("lenient", "warn") : null);
    const full = made("div", { class: "full", hidden: true });
    row.addEventListener("click", () => openResponse(row, full, one, side));
    return [row, full];
  });
  const left = group.n_responses - group.responses.length;
  if (left > 0) rows.push(made("p", { class: "note" }, `${plural(left, "more different response")} ${BUNDLED ? "not in this copy" : "not listed"}.`));
  return rows;
};
const openResponse = async (row, full, one, side, noted = true) => {
  full.hidden = !full.hidden;
  row.setAttribute("aria-expanded", String(!full.hidden));
  if (noted) {
    state.r = full.hidden ? "" : row.dataset.id;
    writeHash();
  }
  if (full.hidden || full.childElementCount) return;
  try {
    const held = await ask("response", { ...pair(), problem: problem.problem_id, at: side.key, response: one.response_id });
    renderFull(full, one, held);
  } catch (error) {
    full.replaceChildren(made("p", { class: "error", role: "alert" }, error.message));
  }
};
// What a side shows at once: A what there was to lose, B what is said now; or what a link names or a search found.
const openFirst = () => {
  const linked = state.r;
  for (const [place, element] of [...document.querySelectorAll(".side")].entries()) {
    const groups = [...element.querySelectorAll(".group")];
    const named = groups.find((one) => one.group.responses.some((held) => `${one.side.key}:${held.response_id}` === linked));
    const hit = state.q && groups.find((one) => one.group.responses.some((held) => held.hit));
    const first = named || hit || (place === 0 && groups.find((one) => one.group.correct)) || groups[0];
    if (!first) continue;
    first.firstElementChild.click();
    const rows = [...first.querySelectorAll(".response")];
    const row = (named && rows.find((one) => one.dataset.id === linked)) || rows[0];
    if (!row) continue;
    const response = first.group.responses[rows.indexOf(row)];
    openResponse(row, row.nextElementSibling, response, first.side, false);
    if (named) row.scrollIntoView({ block: "nearest" });
  }
};

// ---------------------------------------------------------------- a response in full

const withHits = (text) => {
  const parts = [], wanted = BUNDLED ? "" : state.q.toLowerCase(), low = text.toLowerCase();
  let from = 0;
  // letters whose lower case is longer would shift every place behind them
  for (let at = wanted && low.length === text.length ? low.indexOf(wanted) : -1; at >= 0; at = low.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), made("mark", { class: "hit" }, text.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  return [...parts, text.slice(from)];
};
const plainText = (held) => {
  const box = made("pre", { tabindex: "0", "aria-label": "Response" }, ...withHits(held.before));
  if (held.answer) box.append(made("mark", { class: "read", title: "read as the answer" }, ...withHits(held.answer)));
  box.append(...withHits(held.after));
  return box;
};
// From likely to unlikely, from sure to unsure: where a colour begins, in probability and in nats.
const STEPS = { logp: [0.9, 0.5, 0.1, 0.01], entropy: [0.1, 0.5, 1, 2] };
const heatOf = (kind, value) => {
  if (kind === "entropy") return value === null ? 4 : STEPS.entropy.filter((edge) => value >= edge).length;
  return value === null ? 4 : STEPS.logp.filter((edge) => Math.exp(value) < edge).length;
};
const LEGENDS = { logp: ["p ≥ 0.9", "≥ 0.5", "≥ 0.1", "≥ 0.01", "less"], entropy: ["below 0.1 nats", "0.1", "0.5", "1", "2 and more"] };
const heatText = (held, kind, score) => {
  const values = kind === "logp" ? score.logps : score.entropies;
  const whole = held.before + held.answer + held.after, first = held.before.length, last = first + held.answer.length;
  const fits = held.pieces.length === values.length && held.pieces.join("").startsWith(whole);
  let from = 0;
  const box = made("pre", { tabindex: "0", class: "heated", "aria-label": "Response, token by token" });
  values.forEach((value, i) => {
    const piece = held.pieces.length ? held.pieces[i] : `${held.token_ids[i] ?? "?"} `;
    const until = from + piece.length;
    const inside = fits && held.answer && from < last && until > first;
    const logp = score.logps[i], entropy = score.entropies[i];
    const p = logp === null ? "0" : Math.exp(logp).toPrecision(3);
    box.append(made("span", {
      class: `t h${heatOf(kind, value)}${inside ? " read" : ""}`,
      title: `p ${p}, log-probability ${logp === null ? "−∞" : logp} nats, entropy ${entropy === null ? "not known" : `${entropy} nats`}`,
    }, piece));
    from = until;
  });
  return box;
};
const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
const summary = (score) => {
  const known = score.logps.filter((one) => one !== null);
  return `${score.name}: ${known.length === score.logps.length && known.length ? `${mean(known).toFixed(3).replace("-", "−")} nats a token` : "impossible"}`;
};
const heats = (held) => held.scores.flatMap((score) => [
  [`logp:${score.name}`, `probability under ${score.name}`], [`entropy:${score.name}`, `entropy under ${score.name}`],
]);
const renderFull = (full, one, held) => {
  const facts = [`sample ${one.sample_index}`];
  if (one.n_tokens !== null) facts.push(plural(one.n_tokens, "token"));
  if (one.cut) facts.push("cut off by the token limit");
  if (one.greedy) facts.push("the greedy response");
  if (one.why) facts.push(one.why);
  if (one.lenient) facts.push(one.lenient);
  const meta = made("div", { class: "meta" }, made("span", {}, facts.join(" · ")));
  full.replaceChildren(meta);
  const choices = heats(held);
  if (choices.length) {
    const select = made("select", { class: "heat" }, made("option", { value: "" }, "none"),
      ...choices.map(([value, text]) => made("option", { value }, text)));
    select.value = choices.some(([value]) => value === state.heat) ? state.heat : "";
    select.addEventListener("change", () => setHeat(select.value));
    meta.append(made("label", {}, "heat ", select), made("span", {}, held.scores.map(summary).join(" · ")));
  }
  full.held = [one, held];
  const [kind, ...name] = state.heat.split(":");
  const score = held.scores.find((each) => each.name === name.join(":"));
  if (score) {
    full.append(made("p", { class: "legend" }, ...LEGENDS[kind].map((text, i) => made("span", { class: `t h${i}` }, text))), heatText(held, kind, score));
    if (held.why_no_pieces) full.append(made("p", { class: "note" }, `Tokens by number: ${held.why_no_pieces}.`), plainText(held));
    return;
  }
  if (state.heat) full.append(made("p", { class: "note" }, `No heat here: ${held.why_no_scores || "it was not scored under that checkpoint"}.`));
  full.append(plainText(held));
};
const setHeat = (heat) => {
  const active = document.activeElement, inFull = active && active.closest && active.closest(".full");
  state.heat = heat;
  writeHash();
  for (const full of document.querySelectorAll(".full")) if (full.held) renderFull(full, ...full.held);
  if (inFull) inFull.querySelector("select.heat")?.focus();
};
const nextHeat = () => {
  const all = [...new Set([...document.querySelectorAll(".full")].flatMap((full) => (full.held ? heats(full.held[1]).map(([value]) => value) : [])))];
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

// ---------------------------------------------------------------- beginning

const showList = async () => {
  const turn = ++turns.list;
  showHead();
  if (state.a === state.b) return nothing("A and B are the same checkpoint: choose another.", true);
  try {
    const found = await ask("problems", pair());
    if (turn !== turns.list) return;
    listed = found;
    problem = null;
    const held = state.p;
    showOnly();
    for (const one of $("left").querySelectorAll(".notes")) one.remove();
    if (gone) $("list").before(made("p", { class: "notes", role: "alert" }, gone));
    const said = [start.note, found.sentence, ...found.notes].filter(Boolean);
    $("list").before(made("details", { class: "notes" }, made("summary", {}, "What became of them"), ...said.map((text) => made("p", {}, text))));
    if (held && listed.problems.some((one) => one.problem_id === held)) showProblem();
    else state.p = "";
    await search();
  } catch (error) {
    if (turn === turns.list) nothing(error.message, true);
  }
};
const changed = () => {
  gone = "";
  Object.assign(state, { series: $("series").value, a: $("a").value, b: $("b").value, r: "" });
  showList();
};
$("series").addEventListener("change", () => {
  const own = start.series.find((one) => one.name === $("series").value).checkpoints.map((one) => one.key);
  gone = "";
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
    search().catch((error) => nothing(error.message, true));
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
    $("copy").textContent = "Copy it from the address bar";
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
    start = await ask("start");
    if (BUNDLED) $("q").placeholder = $("q").ariaLabel = "Search titles and ids";
    begin();
    if (!narrow()) $("list").focus();
  } catch (error) {
    nothing(error.message, true);
  }
})();
