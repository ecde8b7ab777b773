"use strict";
// Responses of several turns: one alone, or two side by side. view.js has the requests and the rest of the page.

// ---------------------------------------------------------------- turns that are loaded in parts

const turnSource = (trajectory, query) => {
  const loaded = new Map([...trajectory.first, ...trajectory.last].map((turn) => [turn.number, turn]));
  const load = async (start) => {
    for (const turn of await request("turns", { ...query, start })) loaded.set(turn.number, turn);
  };
  return { n: trajectory.n_turns, keys: trajectory.call_keys, loaded, load };
};
const isLoaded = (sources, turn) => sources.every(({ n, loaded }) => turn > n || loaded.has(turn));
const turnRows = (sources, from, until, marked) => {
  const rows = [];
  for (let turn = from; turn <= until; turn += 1) {
    if (isLoaded(sources, turn)) {
      rows.push(turnRow(sources, turn, marked));
      continue;
    }
    const first = turn;
    while (turn < until && !isLoaded(sources, turn + 1)) turn += 1;
    rows.push(gapRow(sources, first, turn, marked));
  }
  return rows;
};
const gapRow = (sources, from, until, marked) => {
  const button = createElement("button", { type: "button" }, "Show more");
  const row = createElement("li", { class: "gap", "data-from": from, "data-until": until },
    createElement("span", {}, from === until ? `Turn ${number(from)} is hidden.` : `Turns ${number(from)} to ${number(until)} are hidden.`), button);
  row.fill = async (start) => {
    const hadFocus = document.activeElement === button;
    button.disabled = true;
    try {
      await Promise.all(sources.filter(({ n }) => start <= n).map((source) => source.load(start)));
      const rows = turnRows(sources, from, until, marked);
      row.replaceWith(...rows);
      if (hadFocus) rows[0].focus({ preventScroll: true });
    } catch (error) {
      button.disabled = false;
      row.append(createElement("span", { class: "error", role: "alert" }, error.message));
    }
  };
  button.addEventListener("click", () => row.fill(from));
  return row;
};
// `marked` has for each source the turn and the index of a call to mark, or null.
const turnList = (sources, marked = sources.map(() => null)) => {
  const list = createElement("ol", { class: sources.length > 1 ? "turns aligned" : "turns" });
  list.append(...turnRows(sources, 1, Math.max(...sources.map(({ n }) => n)), marked));
  return list;
};
const showTurn = async (list, turn) => {
  const gap = [...list.querySelectorAll(".gap")].find(({ dataset }) => dataset.from <= turn && turn <= dataset.until);
  if (gap) await gap.fill(turn);
  const row = list.querySelector(`[data-turn="${turn}"]`);
  row?.scrollIntoView({ block: "center" });
  row?.focus({ preventScroll: true });
};

// ---------------------------------------------------------------- one turn

const turnRow = (sources, turn, marked) => {
  const row = createElement("li", { class: "turn", "data-turn": turn, tabindex: "-1" },
    createElement("span", { class: "number" }, `turn ${number(turn)}`));
  sources.forEach(({ n, loaded }, place) => {
    const cell = createElement("div", { class: "cell", "data-side": sources.length > 1 ? "AB"[place] : null });
    if (turn <= n) cell.append(...turnParts(loaded.get(turn), marked[place]?.turn === turn ? marked[place].call : null));
    else cell.classList.add("ended");
    if (turn === n + 1) cell.append(createElement("p", { class: "note" }, `ended after turn ${number(n)}`));
    row.append(cell);
  });
  return row;
};
const turnParts = (turn, markedCall) => {
  const parts = turn.calls.map((call, place) => callPart(call, turn.calls.length > 1 ? place + 1 : null, place === markedCall));
  return [
    turn.n_tokens === null ? null : createElement("span", { class: "note tokens" }, plural(turn.n_tokens, "token")),
    turn.reasoning ? folded("think", turn.reasoning, "reasoning", createElement("span", { class: "note" }, plural(turn.reasoning.length, "character"))) : null,
    turn.before || turn.answer || turn.after ? plainText(turn, "Text of the model") : null,
    ...parts,
    ...turn.observations.map((observation) => observationPart(observation, turn)),
  ].filter(Boolean);
};
const hasHit = (text) => Boolean(state.q) && text.toLowerCase().includes(state.q.toLowerCase());
const textBox = (text, label) => createElement("pre", { tabindex: "0", "aria-label": label }, ...withHits(text));
const folded = (kind, text, name, ...facts) => createElement("details", { class: kind, open: hasHit(text) },
  createElement("summary", {}, name, " ", ...facts), textBox(text, name));
const oneLine = (text) => (text.length > 300 ? `${text.slice(0, 300)}…` : text).replaceAll(/\s+/g, " ");
// A call without a name could not be read; its arguments are all that the model wrote.
const callText = ({ name, arguments: written }) => (name ? `${name}(${written})` : written);
const callPart = (call, place, isMarked) => {
  const written = callText(call);
  const fields = call.fields.flatMap(([name, value]) => [createElement("dt", {}, ...withHits(name)), createElement("dd", {}, textBox(value, name))]);
  return createElement("details", { class: `call${isMarked ? " differs" : ""}`, open: hasHit(written) },
    createElement("summary", {},
      place === null ? null : createElement("span", { class: "place" }, `${place}`),
      createElement("code", { class: "text" }, ...withHits(oneLine(written))),
      isMarked ? chip("first difference", "alone") : null,
      call.is_valid ? null : chip("invalid", "warn"), call.is_error ? chip("failed", "warn") : null,
      call.is_valid && !call.has_result ? chip("no result") : null),
    fields.length ? createElement("dl", {}, ...fields) : textBox(call.arguments, "Arguments"));
};
const observationPart = (observation, turn) => {
  const [ofTurn, ofCall] = observation.call ?? [];
  const of = ofTurn !== undefined && ofTurn !== turn.number ? `call ${ofCall} of turn ${number(ofTurn)}` : ofCall && turn.calls.length > 1 ? `call ${ofCall}` : "";
  const who = [observation.role === "tool" ? observation.name || "result" : observation.role, of].filter(Boolean).join(" · ");
  return createElement("div", { class: `observation${observation.is_error ? " failed" : ""}` },
    createElement("span", { class: "who" }, who, observation.is_error ? chip("failed", "warn") : null),
    textBox(observation.text, `Observation: ${who}`));
};

// ---------------------------------------------------------------- a response

const trajectoryFacts = (trajectory) => {
  const nCalls = trajectory.call_keys.reduce((n, keys) => n + keys.length, 0);
  return [plural(trajectory.n_turns, "turn"), plural(nCalls, "call"),
    trajectory.n_invalid ? `${number(trajectory.n_invalid)} invalid` : "", trajectory.n_failed ? `${number(trajectory.n_failed)} failed` : ""].filter(Boolean);
};
const hitLine = (hits, list) => createElement("p", { class: "note hits" }, "Found in ", ...hits.flatMap(({ place, n, turns }, i) => [
  `${i ? "; " : ""}${place}: `,
  ...turns.flatMap((turn, j) => {
    const button = createElement("button", { type: "button", class: "link" }, `turn ${number(turn)}`);
    button.addEventListener("click", () => showTurn(list, turn));
    return j ? [", ", button] : [button];
  }),
  n > turns.length ? ` and ${plural(n - turns.length, "more turn")}` : "",
]), ".");
const renderTrajectory = (full, trajectory, query) => {
  const list = turnList([turnSource(trajectory, query)]);
  if (trajectory.hits.length) full.append(hitLine(trajectory.hits, list));
  full.append(list);
};

// ---------------------------------------------------------------- two responses

// The open responses of A and B: {full, query, response, name}, or null.
let opened = [null, null];
const noteOpened = (place, response) => {
  opened[place] = response;
  renderPair();
};
// A plain response is one turn without calls.
const trajectoryOf = ({ response }) => response.trajectory ?? {
  n_turns: 1, call_keys: [[]], first: [{ ...response, number: 1, reasoning: "", calls: [], observations: [], n_tokens: null }], last: [],
};
const isPair = () => opened.every(Boolean) && opened.some(({ response }) => response.trajectory);
const flatCalls = (keys) => keys.flatMap((calls, i) => calls.map((key, call) => ({ key, turn: i + 1, call })));
// The first call of either trajectory whose name or arguments differ; null for one that has no such call.
const firstDifference = (trajectories) => {
  const calls = trajectories.map(({ call_keys }) => flatCalls(call_keys));
  const n = Math.max(calls[0].length, calls[1].length);
  for (let i = 0; i < n; i += 1) if (calls[0][i]?.key !== calls[1][i]?.key) return { place: i + 1, n, calls: [calls[0][i] ?? null, calls[1][i] ?? null] };
  return { place: 0, n, calls: [null, null] };
};
const callAt = async (source, { turn, call }) => {
  if (!source.loaded.has(turn)) await source.load(turn);
  return source.loaded.get(turn).calls[call];
};
// The beginnings of both calls; if these are equal, the text around the first difference.
const SHOWN = 160, BEFORE = 40;
const excerpts = (texts) => {
  let same = 0;
  while (texts.every((text) => same < text?.length) && texts[0][same] === texts[1][same]) same += 1;
  const from = same < SHOWN - BEFORE ? 0 : same - BEFORE;
  return texts.map((text) => text && `${from ? "…" : ""}${oneLine(text.slice(from, from + SHOWN))}${text.length > from + SHOWN ? "…" : ""}`);
};
const differenceLine = async ({ place, n, calls }, sources) => {
  if (!n) return ["Neither response has a call."];
  if (!place) return [n === 1 ? "Both have the same call." : `Both have the same ${number(n)} calls.`];
  const texts = excerpts(await Promise.all(calls.map(async (call, side) => call && callText(await callAt(sources[side], call)))));
  return [createElement("b", {}, `First divergent call: call ${number(place)}`), ...calls.map((call, side) => createElement("span", { class: "call-of" },
    "AB"[side], ...(call ? [` in turn ${number(call.turn)}: `, createElement("code", {}, texts[side])] : [" has no further call"])))];
};
const renderPair = async () => {
  const box = $("pair");
  if (!box) return;
  box.hidden = !isPair();
  $("sides").hidden = isPair() && state.turns === "pair";
  box.replaceChildren();
  if (!isPair()) return;
  const both = opened.slice(), trajectories = both.map(trajectoryOf);
  const sources = both.map(({ query }, side) => turnSource(trajectories[side], query));
  const difference = firstDifference(trajectories);
  const button = createElement("button", { type: "button", "aria-pressed": String(state.turns === "pair") },
    state.turns === "pair" ? "Back to the answers" : "Turns side by side");
  button.addEventListener("click", togglePair);
  const line = createElement("p", { class: "difference" });
  box.append(createElement("div", { class: "facts" }, line, button));
  try {
    line.append(...(await differenceLine(difference, sources)));
  } catch (error) {
    line.append(createElement("span", { class: "error", role: "alert" }, error.message));
  }
  if (box.firstElementChild?.firstElementChild !== line || state.turns !== "pair") return;
  const list = turnList(sources, difference.calls);
  box.append(createElement("div", { class: "heads" }, ...both.map(({ name }, place) => createElement("h3", {}, createElement("b", {}, "AB"[place]), ` ${name}`))), list);
  const turns = difference.calls.filter(Boolean).map(({ turn }) => turn);
  if (turns.length && Math.min(...turns) > 1) {
    const jump = createElement("button", { type: "button", class: "link" }, `Go to turn ${number(Math.min(...turns))}`);
    jump.addEventListener("click", () => showTurn(list, Math.min(...turns)));
    line.append(" ", jump);
  }
};
const togglePair = () => {
  state.turns = state.turns === "pair" ? "" : "pair";
  writeHash();
  renderPair().then(() => $("pair").querySelector("button[aria-pressed]")?.focus());
};

// ---------------------------------------------------------------- hits in a static copy

// The same places as in trajectories.py. Returns one entry for each place, with the numbers of its turns.
const findHits = (turns, low) => {
  const inside = (...texts) => texts.join("\n").toLowerCase().includes(low);
  const rules = {
    text: (turn) => inside(turn.reasoning, turn.before + turn.answer + turn.after) || turn.observations.some(({ role, text }) => role !== "tool" && inside(text)),
    call: (turn) => turn.calls.some((call) => inside(`${call.name}(${call.arguments})`)),
    observation: (turn) => turn.observations.some(({ role, text }) => role === "tool" && inside(text)),
  };
  return Object.entries(rules).flatMap(([place, rule]) => {
    const numbers = turns.filter(rule).map((turn) => turn.number);
    return numbers.length ? [{ place, n: numbers.length, turns: numbers.slice(0, 20) }] : [];
  });
};
