"use strict";
// Adds sorting, filters, permalinks and downloads. The report is readable without this script.

const made = (tag, text = "", attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const button = (text, action) => {
  const element = made("button", text, { type: "button" });
  element.addEventListener("click", action);
  return element;
};

// ---------------------------------------------------------------- numbers in cells

// Leading number of a text in the report's format. The page omits sort keys that this yields (see render.py).
const NUMBER = /^[+\u2212-]?\d[\d\u202f]*(?:\.\d+)?(?:e[\u2212-]?\d{1,2})?(?![0-9A-Za-z])/;
const plain = (text) => text.replaceAll("\u202f", "").replaceAll("\u2212", "-").replace(/^\+/, "");
const SHARE = /^(\d+) \/ (\d+)$/;
const leading = (text) => {
  const share = SHARE.exec(text.trim());
  if (share) return share[1] / share[2];
  const match = NUMBER.exec(text.trim());
  return match ? Number(plain(match[0])) : NaN;
};
const isNumeric = (head) => !head.classList.contains("t");
const sortKey = (row, column, numeric) => {
  const cell = row.cells[column];
  if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
  return numeric ? leading(cell.textContent) : NaN;
};

// ---------------------------------------------------------------- sort

const sortBy = (table, head, column, up = head.getAttribute("aria-sort") !== "ascending") => {
  const body = table.tBodies[0];
  const numeric = isNumeric(head);
  const order = (a, b) => {
    const x = sortKey(a, column, numeric), y = sortKey(b, column, numeric);
    if (!Number.isNaN(x) && !Number.isNaN(y)) return up ? x - y : y - x;
    if (!Number.isNaN(x)) return -1; // unknown numbers stay last in both directions
    if (!Number.isNaN(y)) return 1;
    const words = a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true });
    return up ? words : -words;
  };
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  body.append(...[...body.rows].sort(order));
};

// One keyboard control for all columns; a click on a column header does the same.
const addSort = (table, heads, title) => {
  const choice = made("select", "", { class: "sort", "aria-label": `Sort: ${title}` });
  choice.append(made("option", "sort", { value: "" }));
  heads.forEach((head, column) => {
    const name = head.textContent;
    if (!name) return;
    head.classList.add("sorts");
    for (const way of ["\u2191", "\u2193"]) choice.append(made("option", `${name} ${way}`, { value: `${column}${way}` }));
    head.addEventListener("click", () => {
      sortBy(table, head, column);
      choice.value = `${column}${head.getAttribute("aria-sort") === "ascending" ? "\u2191" : "\u2193"}`;
    });
  });
  const first = [...table.tBodies[0].rows];
  choice.addEventListener("change", () => {
    const column = parseInt(choice.value, 10);
    if (choice.value) return sortBy(table, heads[column], column, choice.value.endsWith("\u2191"));
    for (const head of heads) head.removeAttribute("aria-sort");
    table.tBodies[0].append(...first);
  });
  return choice;
};

// ---------------------------------------------------------------- CSV

// Spreadsheets run text with these leading characters as a formula.
const quoted = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
const SPAN = new RegExp(`^(${NUMBER.source.slice(1)}) \\[(${NUMBER.source.slice(1)}), (${NUMBER.source.slice(1)})\\]$`);
const NAMES = new Map([[SPAN, ["", " low", " high"]], [SHARE, ["", " of"]]]);

// Numbers stay numbers: an interval becomes three columns, a count of samples two.
const csvOf = (table) => {
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
  const columns = heads.map((head, i) => {
    const texts = rows.map((row) => row.cells[i].textContent.trim());
    const pattern = isNumeric(head) ? [...NAMES.keys()].find((one) => texts.some((text) => one.test(text))) : undefined;
    const names = pattern ? NAMES.get(pattern) : [""];
    const cells = texts.map((text) => {
      const parts = pattern && pattern.exec(text);
      if (parts) return parts.slice(1).map(plain);
      const whole = isNumeric(head) && NUMBER.exec(text);
      const value = whole && whole[0] === text ? plain(text) : text === "\u2013" ? "" : quoted(text);
      return [value, ...names.slice(1).map(() => "")];
    });
    return { names: names.map((name) => quoted(head.textContent.trim() + name)), cells };
  });
  const lines = rows.map((_, j) => columns.flatMap((column) => column.cells[j]).join(","));
  return [columns.flatMap((column) => column.names).join(","), ...lines, ""].join("\r\n");
};
const save = (name, parts, type) => {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = made("a", "", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};
const fileName = (text) => `${text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")}.csv`;

// ---------------------------------------------------------------- filter

const unpack = (base64) => {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
};

const addFilter = (table, region) => {
  const rows = [...table.tBodies[0].rows];
  const texts = new Map(); // row → its text and whole prompt
  const loadTexts = async () => {
    if (texts.size) return;
    const whole = table.dataset.search && "DecompressionStream" in window ? await unpack(table.dataset.search).json() : [];
    rows.forEach((row, i) => texts.set(row, `${row.textContent} ${whole[i] ?? ""}`.toLowerCase()));
  };
  const states = [...new Set(rows.flatMap((row) => row.dataset.state.split(" ")))];
  const words = made("input", "", { type: "search", placeholder: "text or id", "aria-label": "Show problems that contain" });
  const choice = made("select", "", { "aria-label": "Show problems that" });
  choice.append(made("option", "all", { value: "" }), ...states.map((state) => made("option", state, { value: state })));
  const count = made("output");
  const apply = async () => {
    await loadTexts();
    const wanted = words.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = !choice.value || row.dataset.state.split(" ").includes(choice.value);
      row.hidden = !(fits && texts.get(row).includes(wanted));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} shown`;
  };
  words.addEventListener("input", apply);
  choice.addEventListener("change", apply);
  apply();
  const controls = made("div", "", { class: "controls", role: "search" });
  controls.append(words, choice, count);
  region.before(controls);
};

for (const table of document.querySelectorAll("table.data")) {
  const region = table.parentElement;
  const heads = [...table.tHead.rows[0].cells];
  const count = table.tBodies[0].rows.length;
  const title = region.getAttribute("aria-label");
  const sort = count > 1 ? [addSort(table, heads, title)] : [];
  if (table.hasAttribute("data-filter")) addFilter(table, region);
  if (count) {
    const csv = button("CSV", () => save(fileName(title), [csvOf(table)], "text/csv;charset=utf-8"));
    csv.className = "tool";
    csv.setAttribute("aria-label", `Download as CSV: ${title}`);
    region.after(...sort, csv);
  }
}

// The findings are embedded as gzip: unpacked if the browser can, else the link downloads the gzip file.
for (const link of document.querySelectorAll('a[href^="data:application/gzip"]')) {
  if (!("DecompressionStream" in window)) continue;
  link.textContent = link.download.replace(/\.gz$/, "");
  link.addEventListener("click", (event) => {
    event.preventDefault();
    unpack(link.href.split(",")[1]).blob().then((blob) => save(link.textContent, [blob], "text/csv;charset=utf-8"));
  });
}

// ---------------------------------------------------------------- permalinks

const unfold = (element) => {
  for (let parent = element; parent; parent = parent.parentElement) if (parent.tagName === "DETAILS") parent.open = true;
};
const follow = () => {
  let id = location.hash.slice(1);
  try { id = decodeURIComponent(id); } catch { return; } // a link truncated inside a character
  const target = document.getElementById(id);
  if (!target) return;
  unfold(target);
  target.scrollIntoView();
};
addEventListener("hashchange", follow);
const linkTo = (id, title) => {
  const link = made("a", "#", { href: `#${id}`, class: "tool permalink", "aria-label": `Copy the link to: ${title}` });
  link.addEventListener("click", (event) => {
    event.preventDefault();
    if (location.hash === `#${id}`) follow();
    else location.hash = id;
    const copied = navigator.clipboard ? navigator.clipboard.writeText(location.href) : Promise.reject();
    copied.then(() => (link.textContent = "copied"), () => (link.textContent = "in the address bar"));
    setTimeout(() => (link.textContent = "#"), 1500);
  });
  return link;
};
for (const part of document.querySelectorAll("section[id], figure[id]")) {
  const head = part.querySelector("h2, h3");
  if (head) head.append(" ", linkTo(part.id, head.textContent));
}
for (const problem of document.querySelectorAll("details.case[id]")) {
  const head = problem.querySelector("h4");
  head.append(" ", linkTo(problem.id, problem.querySelector("summary").textContent.trim()));
}

// ---------------------------------------------------------------- points of pictures

// The points of a picture as [name, left, top, x text, y text]; the format is defined in pictures/points.py.
const readPoints = (text) => {
  const groups = text.split("|").map((group) => group.split(";"));
  if (groups[0].length > 1) return groups.flatMap(([name, ...own]) => own.map((point) => toPoint(name, point.split(","))));
  const [left, top, right, bottom, x0, x1, y0, y1, logX, logY] = groups[0][0].split(" ").map(Number);
  const part = (value, low, high, log) => {
    const [v, l, h] = log ? [value, low, high].map(Math.log) : [value, low, high];
    return (v - l) / (h - l);
  };
  let xs = [];
  return groups.slice(1).flatMap(([name, across, up]) => {
    if (across) xs = across.split(" ");
    return up.split(" ").map((y, i) => [
      name,
      left + (right - left) * part(Number(xs[i]), x0, x1, logX),
      bottom - (bottom - top) * part(Number(y), y0, y1, logY),
      xs[i].replace("-", "\u2212"),
      y.replace("-", "\u2212"),
    ]);
  });
};
const toPoint = (name, [x, y, across, up]) => [name, Number(x), Number(y), across, up];

const addPoints = (svg) => {
  const points = readPoints(svg.dataset.points);
  const tip = made("output", "", { class: "tip", hidden: "" });
  svg.parentElement.append(tip);
  svg.tabIndex = 0;
  let shown = -1;
  const show = (i) => {
    shown = (i + points.length) % points.length;
    const [name, x, y, across, up] = points[shown];
    const scale = 10 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    tip.textContent = `${[name, across].filter(Boolean).join(", ")}: ${up}`;
    tip.hidden = false;
    const place = svg.getBoundingClientRect(), panel = svg.parentElement.getBoundingClientRect();
    const most = panel.width - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(most, place.left - panel.left + x * scale - tip.offsetWidth / 2))}px`;
    tip.style.top = `${place.top - panel.top + y * scale - tip.offsetHeight - 8}px`;
  };
  const hide = () => (tip.hidden = true);
  svg.addEventListener("pointermove", (event) => {
    const place = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / place.width / 10;
    const at = [(event.clientX - place.left) * scale, (event.clientY - place.top) * scale];
    const away = points.map(([, x, y]) => Math.hypot(x - at[0], y - at[1]));
    const nearest = away.indexOf(Math.min(...away));
    if (away[nearest] < 30) show(nearest);
    else hide();
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("focus", () => show(Math.max(shown, 0)));
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const line = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") return hide();
    if (!step && !line) return undefined;
    event.preventDefault();
    if (step) return show(shown + step);
    // the next line, at the point nearest in x
    const names = [...new Set(points.map(([name]) => name))];
    const wanted = names[(names.indexOf(points[shown][0]) + line + names.length) % names.length];
    const own = points.map((point, i) => [Math.abs(point[1] - points[shown][1]), i]).filter(([, i]) => points[i][0] === wanted);
    return show(own.sort((a, b) => a[0] - b[0])[0][1]);
  });
};
for (const svg of document.querySelectorAll("svg[data-points]")) addPoints(svg);

// ---------------------------------------------------------------- fold and unfold

for (const group of document.querySelectorAll(".cases")) {
  const cases = [...group.querySelectorAll("details.case")];
  if (cases.length < 2) continue;
  const all = button("Open all", () => {
    const open = cases.some((problem) => !problem.open);
    for (const problem of cases) problem.open = open;
    all.textContent = open ? "Close all" : "Open all";
  });
  all.className = "tool";
  group.querySelector("h3").after(all);
}
// On narrow screens there is no room for data next to a figure: fold them.
if (!matchMedia("(min-width: 860px)").matches) {
  for (const details of document.querySelectorAll(".figure.lone > details")) details.open = false;
}
// Unfold the scope of the verdict for printing. Problems are printed only if open.
const folded = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("#decision > .reading, details.basis")) {
    if (details.open) continue;
    details.open = true;
    folded.push(details);
  }
});
addEventListener("afterprint", () => {
  for (const details of folded.splice(0)) details.open = false;
});
follow();
