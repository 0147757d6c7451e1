"use strict";
// Rows arrive as packed data and leave as text nodes: no text of the topic is ever read as HTML or as an expression of a picture.

const DAY_MS = 86400000;
const ROWS_AT_FIRST = 25;
const MOST_BARS = 15;
const GROUPS_AT_FIRST = 25;
const MOST_PARTITIONS = 40;
const MOST_WEEKS = 10;
const MOST_FOUND = 12;
const OF_GROUP = ["members", "offsets", "events", "expiring"];
const NOT_OF_GROUP = ["groups", "owner_commits", "idle_groups", "client_inventory"];
const ERRORS_ALONE = 1;
const SPANS = { narrow: 10, wide: 35 };

const wholeNumbers = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

// ---- Reading the data ----

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

class Rows {
  constructor(packed, texts) {
    Object.assign(this, packed);
    this.texts = texts;
    this.size = packed.columns.length ? packed.columns[0].cells.length : 0;
    this.byName = new Map(packed.columns.map((column) => [column.name, column]));
  }

  value(column, row) {
    const cell = column.cells[row];
    return column.kind === "text" && cell !== null ? this.texts[cell] : cell;
  }

  of(name, row) {
    return this.value(this.byName.get(name), row);
  }

  object(row) {
    return Object.fromEntries(this.columns.map((column) => [column.name, this.value(column, row)]));
  }

  objects() {
    return Array.from({ length: this.size }, (_, row) => this.object(row));
  }

  searchable(row) {
    this.lower ??= [];
    this.lower[row] ??= this.columns.map((column) => plain(this.value(column, row), column.kind)).join("\n").toLowerCase();
    return this.lower[row];
  }
}

// ---- Showing values ----

const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** The text with an escape for each character that cannot be seen or that turns the order of letters, as the commands print it. */
function seen(text) {
  return text.replace(UNSEEN, (letter) => {
    const code = letter.codePointAt(0);
    const named = { 9: "\\t", 10: "\\n", 13: "\\r" }[code];
    if (named) return named;
    const digits = code.toString(16);
    return code < 0x100 ? `\\x${digits.padStart(2, "0")}` : code < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
  });
}

function short(text, most) {
  const letters = [...text.slice(0, 4000)];
  if (letters.length <= most) return text;
  const tail = Math.floor(most / 3);
  return letters.slice(0, most - tail - 1).join("") + "…" + [...text.slice(-2 * tail)].slice(-tail).join("");
}

const label = (text, most) => (text === "" ? "(empty)" : short(seen(text), most));

/** Labels that differ where the texts do, for the axis of a picture. */
function labels(texts, most) {
  const taken = new Set();
  return new Map(
    texts.map((text) => {
      let name = label(text, most);
      for (let number = 2; taken.has(name); number++) name = `${label(text, most - 4)} (${number})`;
      taken.add(name);
      return [text, name];
    }),
  );
}

const day = (number) => new Date(number * DAY_MS).toISOString().slice(0, 10);

function moment(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "";
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? String(milliseconds) : date.toISOString().slice(0, 19).replace("T", " ") + "Z";
}

function bytes(number) {
  let size = number;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (size < 1000) return `${wholeNumbers.format(Math.round(size * 10) / 10)} ${unit}`;
    size /= 1000;
  }
  return `${wholeNumbers.format(Math.round(size * 10) / 10)} TB`;
}

/** A text as one word of a shell. No command line can hold NUL: `?` in its place makes a pattern. */
function shellWord(text) {
  if (/^[\w.\/:=-]+$/.test(text)) return text;
  if (seen(text) === text) return `'${text.replaceAll("'", "'\\''")}'`;
  const escaped = (letter) => (letter === "\0" ? "?" : /[\\']/.test(letter) ? `\\${letter}` : seen(letter) === letter ? letter : letter.codePointAt(0) < 0x80 ? `\\x${letter.codePointAt(0).toString(16).padStart(2, "0")}` : `\\U${letter.codePointAt(0).toString(16).padStart(8, "0")}`);
  return `$'${[...text].map(escaped).join("")}'`;
}

const percent = (share) => `${wholeNumbers.format(Math.floor(share * 1000) / 10)} %`;

/** A value for people. */
function plain(value, kind) {
  if (value === null) return "";
  if (kind === "text") return seen(value);
  if (kind === "truth") return value ? "yes" : "no";
  if (kind === "time") return moment(value);
  if (kind === "day") return day(value);
  if (typeof value === "string") return value;
  if (kind === "bytes") return bytes(value);
  if (kind === "share") return percent(value);
  return wholeNumbers.format(value);
}

/** A value as a cell of CSV, as `groupcoord --output csv` writes it: a text that a spreadsheet would run begins with a quote sign. */
function csvCell(value, kind) {
  if (value === null) return "";
  if (kind === "truth") return value ? "true" : "false";
  if (kind === "time") return Number.isNaN(new Date(value).getTime()) ? String(value) : new Date(value).toISOString();
  if (kind === "day") return day(value);
  if (kind !== "text") return String(value);
  const text = /^[=+\-@\t\r\n]/.test(value) && !/^-[0-9]+(\.[0-9]+)?$/.test(value) ? `'${seen(value)}` : seen(value);
  return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function element(tag, fields = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const words = (name) => name.replaceAll("_", " ");
const counted = (number, noun) => `${wholeNumbers.format(number)} ${noun}${number === 1 ? "" : "s"}`;

// ---- Tables ----

/** Columns of names of any length, which cells shorten; every other text is shown whole. */
const NAMES = ["group_id", "topic", "client_id", "client_host", "member_id", "instance_id", "template", "metadata", "subject", "transactional_id", "source", "copy", "inputs"];

const COMPARISONS = {
  "=": (value, wanted) => value === wanted,
  "<>": (value, wanted) => value !== wanted,
  ">=": (value, wanted) => Number(value) >= wanted,
  "<=": (value, wanted) => Number(value) <= wanted,
};

class TableView {
  /** id: of the element. without: columns that are not shown. */
  constructor(rows, id = `table-${rows.name}`, without = []) {
    this.rows = rows;
    this.columns = rows.columns.filter((column) => ![...without, "lag_is_partial"].includes(column.name));
    this.where = [];
    this.search = "";
    this.sorted = null;
    this.most = ROWS_AT_FIRST;
    const numbers = rows.lacks ? "not known" : counted(rows.all_rows, "row");
    this.details = element(
      "details",
      { className: "table", id },
      element("summary", {}, element("strong", { textContent: rows.title }), element("span", { className: "rows", textContent: numbers })),
    );
    this.details.addEventListener("toggle", () => this.details.open && this.build());
  }

  /** Opens the table with the rows that meet the conditions. */
  open(where = []) {
    this.build();
    this.where = where;
    this.search = "";
    if (this.input) this.input.value = "";
    this.most = ROWS_AT_FIRST;
    this.details.open = true;
    this.draw();
    this.details.scrollIntoView({ block: "start" });
    this.details.querySelector("summary").focus({ preventScroll: true });
  }

  build() {
    if (this.built) return;
    this.built = true;
    const { rows } = this;
    this.details.append(element("p", { className: "about-table", textContent: rows.lacks ?? rows.about }));
    if (rows.lacks || !rows.size) {
      if (!rows.lacks) this.details.append(element("p", { className: "about-table", textContent: "There are no such rows." }));
      return;
    }
    this.input = element("input", { type: "search", placeholder: "Filter the rows", "aria-label": `Filter the rows of ${rows.title}` });
    this.input.addEventListener("input", () => {
      this.search = this.input.value.toLowerCase();
      this.most = ROWS_AT_FIRST;
      this.draw();
    });
    this.chips = element("span", { className: "controls" });
    this.count = element("span", { className: "count", role: "status" });
    const csv = element("button", { type: "button", className: "push", textContent: "Save as CSV" });
    csv.addEventListener("click", () => this.save());
    this.body = element("tbody");
    this.heads = this.columns.map((column, at) => {
      const button = element("button", { type: "button", textContent: words(column.name) });
      button.addEventListener("click", () => this.sortBy(at));
      return element("th", { scope: "col", className: isRight(column.kind) ? "right" : "" }, button);
    });
    this.more = element("button", { type: "button", textContent: "Show more rows" });
    this.more.addEventListener("click", () => {
      this.most *= 4;
      this.draw();
    });
    const table = element("table", { "aria-label": rows.title }, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.scroll = element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": rows.title }, table);
    this.scroll.addEventListener("scroll", () => this.sayIfWide());
    new ResizeObserver(() => this.sayIfWide()).observe(this.scroll);
    this.wide = element("span", { className: "count", textContent: "More columns on the right: scroll →" });
    this.details.append(element("div", { className: "controls" }, this.input, this.chips, this.count, this.wide, csv), this.scroll, element("p", {}, this.more));
    this.draw();
  }

  /** The right edge fades, and a line says so, while there are columns beyond it. */
  sayIfWide() {
    const hidden = this.scroll.scrollWidth - this.scroll.clientWidth - this.scroll.scrollLeft;
    this.scroll.classList.toggle("more", hidden > 4);
    this.wide.hidden = hidden <= 4;
  }

  sortBy(at) {
    const [before, falling] = this.sorted ?? [];
    this.sorted = before !== at ? [at, this.columns[at].kind !== "text"] : falling === (this.columns[at].kind !== "text") ? [at, !falling] : null;
    this.draw();
  }

  shownRows() {
    const { rows } = this;
    const tests = this.where.map(([name, comparison, wanted]) => [rows.byName.get(name), COMPARISONS[comparison], wanted]);
    const meets = (row) =>
      tests.every(([column, compare, wanted]) => {
        const value = rows.value(column, row);
        return value !== null && compare(value, wanted);
      });
    const found = [];
    for (let row = 0; row < rows.size; row++) if (meets(row) && (!this.search || rows.searchable(row).includes(this.search))) found.push(row);
    if (!this.sorted) return found;
    const [at, falling] = this.sorted;
    const column = this.columns[at];
    const sign = falling ? -1 : 1;
    const order = column.kind === "text" ? new Intl.Collator("en", { numeric: true }).compare : (one, other) => Number(one) - Number(other);
    return found
      .map((row) => [rows.value(column, row), row])
      .sort(([one], [other]) => (one === null ? (other === null ? 0 : 1) : other === null ? -1 : sign * order(one, other)))
      .map(([, row]) => row);
  }

  draw() {
    if (!this.body) return;
    const { rows } = this;
    const found = this.shownRows();
    this.body.replaceChildren(...found.slice(0, this.most).map((row) => element("tr", { className: isDead(rows, row) ? "dead" : "" }, ...this.columns.map((column) => this.cell(column, row)))));
    this.more.parentElement.hidden = found.length <= this.most;
    const carried = rows.size < rows.all_rows ? `; the page carries the first ${counted(rows.size, "row")} of ${wholeNumbers.format(rows.all_rows)}` : "";
    this.count.textContent = `${wholeNumbers.format(found.length)} of ${counted(rows.size, "row")}${carried}`;
    this.chips.replaceChildren(
      ...this.where.map((condition) => {
        const [name, comparison, wanted] = condition;
        const kind = rows.byName.get(name).kind;
        const chip = element("button", { type: "button", className: "chip", textContent: `${words(name)} ${comparison} ${label(plain(wanted, kind), 40)}  ✕` });
        chip.setAttribute("aria-label", `Remove the condition ${words(name)} ${comparison} ${plain(wanted, kind)}`);
        chip.addEventListener("click", () => {
          this.where = this.where.filter((one) => one !== condition);
          this.draw();
          this.input.focus();
        });
        return chip;
      }),
    );
    this.heads.forEach((head, at) => {
      if (this.sorted?.[0] === at) head.setAttribute("aria-sort", this.sorted[1] ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  cell(column, row) {
    const value = this.rows.value(column, row);
    const cell = element("td", { className: isRight(column.kind) ? "right" : "" });
    if (value === null) cell.append(element("span", { className: "none", textContent: "–" }));
    else if (column.kind !== "text") cell.textContent = (column.name === "lag" && isPartial(this.rows, row) ? "≥ " : "") + plain(value, column.kind);
    else this.putText(cell, column.name, value);
    return cell;
  }

  putText(cell, name, value) {
    const isSentence = !NAMES.includes(name);
    const isNarrow = document.documentElement.clientWidth < 640;
    const text = label(value, isSentence ? 300 : isNarrow ? 20 : 48);
    cell.classList.toggle("wrap", isSentence && text.length > 30);
    if (text !== value) cell.title = short(seen(value), 2000);
    if (name === "group_id") {
      cell.append(groupLink(value, text));
    } else {
      cell.append(element("bdi", { textContent: text, className: value === "" ? "none" : "" }));
    }
  }

  csv() {
    const { rows } = this;
    const lines = this.shownRows().map((row) => rows.columns.map((column) => csvCell(rows.value(column, row), column.kind)).join(","));
    return [rows.columns.map((column) => column.name).join(","), ...lines, ""].join("\n");
  }

  save() {
    const link = element("a", { href: URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" })), download: `${this.rows.name}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
}

let livingGroups = null;

/** A link to the page of a group; one that the night does not have looks dead. */
function groupLink(group, text) {
  const isGone = livingGroups !== null && !livingGroups.has(group);
  return element("a", { href: `#group/${encodeURIComponent(group)}`, title: isGone ? "This night does not have the group" : "All about the group", className: isGone ? "dead" : "" }, element("bdi", { textContent: text }));
}

/** Whether the row is about something that is no longer there: a group that is gone, a topic that was deleted. */
function isDead(rows, row) {
  const value = (name) => (rows.byName.has(name) ? rows.of(name, row) : null);
  return ["Dead", "gone"].includes(value("state")) || ["topic_gone", "deleted"].includes(value("remark") ?? value("topic_state"));
}

/** Whether the lag of a group is a lower bound: the sample of log ends lacks some of its partitions. */
const isPartial = (rows, row) => rows.byName.has("lag_is_partial") && rows.of("lag_is_partial", row);

const isRight = (kind) => ["number", "bytes", "share"].includes(kind);

// ---- Pictures ----

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function theme() {
  const text = color("text");
  return {
    background: null,
    font: getComputedStyle(document.body).fontFamily.replaceAll('"', "'"),
    view: { stroke: null },
    axis: { labelColor: text, titleColor: text, gridColor: color("line"), domainColor: color("line"), tickColor: color("line"), labelFontSize: 12 },
    legend: { labelColor: text, titleColor: text, labelFontSize: 12 },
    text: { color: text, fill: text },
    bar: { color: color("accent") },
    rect: { color: color("accent"), stroke: color("card"), strokeWidth: 1 },
    circle: { color: text },
    range: { heatmap: [color("ramp-low"), color("ramp-high")], category: ["#4c8fd6", "#e08a3c", "#3fa58c", "#c56bb0", "#b9a03b", "#7b83d9", "#cf6060", "#6fa84f", "#9a7f6a", "#5aa9b8"] },
  };
}

class Picture {
  constructor(figure, chart, rowsOf, clicked) {
    Object.assign(this, { figure, chart, rowsOf, clicked });
    this.name = figure.dataset.chart;
    this.drawing = element("div", { className: "drawing" });
    this.said = element("p", { className: "said" });
    figure.append(this.drawing, this.said);
  }

  /** Draws the picture anew; the figure says so where there is nothing to draw. */
  async draw() {
    const { rows, said, links = [], without = [], widest = Infinity } = this.rowsOf();
    this.said.replaceChildren(said ?? "", ...links.flatMap(([text, follow]) => [" ", linkButton(text, follow)]));
    this.shown?.finalize();
    this.shown = null;
    this.drawing.hidden = !rows.length;
    this.figure.hidden = !rows.length && !said;
    if (!rows.length) {
      this.drawing.replaceChildren();
      return;
    }
    const { step } = this.chart.height;
    const lines = new Set(rows.map((row) => row[this.chart.encoding?.y?.field])).size;
    const available = Math.floor(this.drawing.clientWidth) - 4;
    const spec = {
      ...this.chart,
      // A layer without rows would still ask for a legend, of no height.
      layer: this.chart.layer.filter((layer) => !without.includes(layer.name)),
      datasets: { rows },
      params: [{ name: "line_color", value: color("line") }],
      config: theme(),
      autosize: { type: "fit-x", contains: "padding" },
      padding: this.chart.padding ?? 2,
      width: Math.max(180, Math.min(available, widest)),
      height: step ? step * lines : this.chart.height,
    };
    // ast: expressions are interpreted, so the page's policy can forbid eval.
    const tooltip = { theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light" };
    const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, hover: false, logLevel: ERRORS_ALONE, tooltip };
    this.shown = await vegaEmbed(this.drawing, spec, options);
    if (this.clicked) this.shown.view.addEventListener("click", (event, item) => item?.datum && this.clicked(item.datum));
    const svg = this.drawing.querySelector("svg");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", this.chart.description);
    this.figure.dataset.drawn = rows.length;
  }
}

function linkButton(text, follow) {
  const button = element("button", { type: "button", className: "link", textContent: text });
  button.addEventListener("click", follow);
  return button;
}

/** The rows of each picture, from the tables. */
class Pictures {
  constructor(page) {
    this.page = page;
    this.mostGroups = GROUPS_AT_FIRST;
    this.groupFilter = "";
    this.isNarrow = () => document.documentElement.clientWidth < 640;
    this.labelLength = () => (this.isNarrow() ? 16 : 34);
  }

  lacking(name) {
    const { lacks } = this.page.tables.get(name);
    return lacks ? { rows: [], said: lacks } : null;
  }

  calendar() {
    const days = this.page.tables.get("expiring_days");
    if (!days.size) return { rows: [], said: "Nothing goes while every group stays as it is." };
    const found = new Map(days.objects().map((row) => [row.day, row]));
    const today = Math.floor(this.page.asOf / DAY_MS);
    const monday = (number) => number - ((number + 3) % 7);
    const first = monday(Math.min(today, ...found.keys()));
    const last = Math.min(monday(Math.max(today, ...found.keys())) + 6, first + 7 * MOST_WEEKS - 1);
    const most = Math.max(1, ...days.byName.get("offsets").cells);
    const rows = [];
    for (let number = first; number <= last; number++) {
      const row = found.get(number);
      const offsets = row ? row.offsets : null;
      const shade = offsets === null ? null : Math.sqrt(offsets / most);
      rows.push({
        day: day(number),
        number,
        week: new Date(monday(number) * DAY_MS).toLocaleDateString("en-GB", { day: "2-digit", month: "short", timeZone: "UTC" }),
        weekday: ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][(number + 3) % 7],
        date: number === today ? "night" : String(new Date(number * DAY_MS).getUTCDate()),
        is_past: number < today,
        is_dark: shade !== null && (shade > 0.55 || matchMedia("(prefers-color-scheme: dark)").matches),
        label: offsets === null ? "" : offsets >= 10000 ? `${Math.round(offsets / 1000)}k` : wholeNumbers.format(offsets),
        offsets,
        shade,
        groups_with_offsets: row?.groups_with_offsets ?? 0,
        groups_removed: row?.groups_removed ?? 0,
      });
    }
    const later = [...found.entries()].filter(([number]) => number > last);
    const gone = later.reduce((sum, [, row]) => sum + row.offsets, 0);
    const said = later.length ? `Later than these weeks: ${counted(gone, "offset")} on ${counted(later.length, "day")}.` : "";
    return { rows, said, links: [["All days as a table", () => this.page.openTable("expiring_days")]] };
  }

  groupDays() {
    const table = this.page.tables.get("group_days");
    const lacking = this.lacking("group_days");
    if (lacking) return lacking;
    if (!table.size) return { rows: [], said: "The history has no record of a group." };
    this.daysOfGroups ??= this.readDays(table);
    const wanted = this.groupFilter;
    const names = [...this.daysOfGroups.keys()].filter((name) => !wanted || seen(name).toLowerCase().includes(wanted));
    const shown = names.slice(0, this.mostGroups);
    let last = Math.floor(this.page.asOf / DAY_MS);
    for (const name of shown) last = Math.max(last, this.daysOfGroups.get(name).at(-1).day);
    const first = last - (this.isNarrow() ? SPANS.narrow : SPANS.wide) + 1;
    const named = labels(shown, this.labelLength());
    const rows = shown.flatMap((name) => statesOf(this.daysOfGroups.get(name), first, last).map((state) => ({ ...state, name: named.get(name), group_id: name, day: day(state.day) })));
    const carried = table.size < table.all_rows ? " The page carries the groups with most problems." : "";
    const said = names.length ? `${counted(shown.length, "group")} of ${wholeNumbers.format(names.length)}, those with most problems first.${carried}` : "No group has these letters.";
    const links = [["All days as a table", () => this.page.openTable("group_days")]];
    if (shown.length < names.length) links.unshift(["Show more groups", () => ((this.mostGroups *= 2), this.page.redraw("group_days"))]);
    return { rows, said, links, widest: 420 + 30 * new Set(rows.map((row) => row.day)).size };
  }

  readDays(table) {
    const groups = new Map();
    for (const row of table.objects()) {
      if (!groups.has(row.group_id)) groups.set(row.group_id, []);
      groups.get(row.group_id).push(row);
    }
    return groups;
  }

  ownership() {
    const lacking = this.lacking("owners");
    if (lacking) return lacking;
    const group = this.page.shownGroup;
    if (group === null) return { rows: [], said: "No group has a timeline." };
    const of = (name) => this.page.tables.get(name).objects().filter((row) => row.group_id === group);
    const owners = of("owners");
    const commits = of("owner_commits");
    const jumps = [...of("rewinds").map((row) => ["went back", row.rewound_at, row.kind, row]), ...of("skips").map((row) => ["skipped records", row.skipped_at, row.cause, row])];
    const times = [...owners.flatMap((row) => [row.owned_from, row.owned_until]), ...commits.flatMap((row) => [row.first_commit, row.last_commit])].filter((time) => time !== null);
    if (!times.length) return { rows: [], said: owners.length + commits.length ? "The records of this group have no times: the tables below have all of them." : "The history has neither an owner nor a commit of this group." };
    const first = Math.min(...times);
    const last = Math.max(...times);
    const end = last + Math.max(1000, (last - first) * 0.02);
    const partitions = new Map();
    for (const row of [...owners, ...commits]) partitions.set(`${row.topic}-${row.partition}`, row);
    const order = new Intl.Collator("en", { numeric: true }).compare;
    const names = [...partitions.keys()].sort(order);
    const shown = names.slice(0, MOST_PARTITIONS);
    const named = labels(shown, this.labelLength());
    const members = labels([...new Set(owners.map((row) => row.member_id))], this.isNarrow() ? 34 : 48);
    const line = (row) => named.get(`${row.topic}-${row.partition}`);
    const rows = [
      ...owners.map((row) => ({ what: "owned", name: line(row), member: members.get(row.member_id), from: row.owned_from ?? first, until: row.owned_until ?? (row.is_current || row.owned_from !== null ? end : first), from_text: moment(row.owned_from), until_text: row.is_current ? "still has it" : moment(row.owned_until) || "no record tells" })),
      ...commits.map((row) => ({ what: "commits", name: line(row), from: (row.first_commit + row.last_commit) / 2, from_text: moment(row.first_commit), until_text: moment(row.last_commit), commits: row.commits, offsets: row.lowest_offset === row.highest_offset ? String(row.lowest_offset) : `${row.lowest_offset} to ${row.highest_offset}` })),
      ...jumps.map(([jump, at, kind, row]) => ({ what: "jump", jump, name: line(row), from: at, from_text: moment(at), offsets: `${row.from_committed_offset} to ${row.to_committed_offset}`, kind })),
    ].filter((row) => row.name !== undefined);
    const parts = names.length > shown.length ? `The first ${shown.length} of ${counted(names.length, "partition")}. ` : "";
    const alone = owners.length ? "" : "No member had a partition by its records: only commits are known. ";
    const where = [["group_id", "=", group]];
    return { rows, said: parts + alone, without: [["owned", owners], ["jumps", jumps]].filter(([, all]) => !all.length).map(([name]) => name), links: [["Owners as a table", () => this.page.openTable("owners", where)], ["Commits as a table", () => this.page.openTable("owner_commits", where)]] };
  }

  lag() {
    const lacking = this.lacking("lag");
    if (lacking) return lacking;
    const table = this.page.tables.get("lag_by_group");
    const behind = table.objects().filter((row) => row.lag > 0);
    const shown = behind.slice(0, MOST_BARS);
    const named = labels(shown.map((row) => row.group_id), this.labelLength());
    const said = behind.length ? `${counted(shown.length, "group")} of ${wholeNumbers.format(behind.length)} that are behind; ${wholeNumbers.format(table.size - behind.length)} are not.${shown.some((row) => row.share_of_log >= 0.9) ? " Red: 90 % or more of what the log still has." : ""}` : "No group is behind.";
    return { rows: shown.map((row) => ({ ...row, name: named.get(row.group_id) })), said, links: [["Every partition as a table", () => this.page.openTable("lag")]] };
  }

  lagHistory() {
    const table = this.page.tables.get("lag_history");
    if (table.lacks) return { rows: [], said: "" };
    const rows = table.objects();
    if (new Set(rows.map((row) => row.sampled_at)).size < 2) return { rows: [], said: "One sample of log ends: the lag over time needs another night with one." };
    const behind = new Set(rows.filter((row) => row.lag > 0).map((row) => row.group_id));
    if (!behind.size) return { rows: [], said: "No group was behind at any sample." };
    const first = this.page.tables.get("lag_by_group").objects().map((row) => row.group_id).filter((group) => behind.has(group)).slice(0, 6);
    const named = labels(first, 40);
    return { rows: rows.filter((row) => named.has(row.group_id)).map((row) => ({ ...row, name: named.get(row.group_id), time_text: moment(row.sampled_at) })), said: `The ${counted(first.length, "group")} with the most lag.`, links: [["All as a table", () => this.page.openTable("lag_history")]] };
  }

  commitHours() {
    const lacking = this.lacking("commit_hours");
    if (lacking) return lacking;
    const table = this.page.tables.get("commit_hours");
    if (!table.size) return { rows: [], said: "The history has no commit with a timestamp." };
    const all = table.objects();
    const newest = all[0].hour;
    const shown = all.filter((row) => row.hour > newest - (this.isNarrow() ? 4 : 14) * DAY_MS);
    const rows = shown.map((row) => ({ ...row, from: row.hour, until: row.hour + 3600000, time_text: moment(row.hour), complete_text: percent(row.completeness) }));
    const hours = (newest - shown.at(-1).hour) / 3600000;
    const pale = rows.some((row) => row.completeness < 1) ? " Pale: compaction took some, the count is a lower bound." : "";
    const one = rows.length === 1 ? ` All within the hour from ${moment(newest)}.` : "";
    return { rows, said: `The newest ${counted(rows.length, "hour")} with a commit, of ${wholeNumbers.format(table.all_rows)}.${one}${pale}`, links: [["All hours as a table", () => this.page.openTable("commit_hours")]], widest: 300 + 24 * hours };
  }

  groupTemplates() {
    const lacking = this.lacking("group_templates");
    if (lacking) return { rows: [], said: "" };
    const table = this.page.tables.get("group_templates");
    const shown = table.objects().slice(0, MOST_BARS);
    const named = labels(shown.map((row) => row.template), this.labelLength());
    const rows = shown.map((row) => ({ ...row, name: named.get(row.template), label: bytes(row.bytes), complete_text: percent(row.completeness) }));
    return { rows, said: `${counted(rows.length, "template")} of ${wholeNumbers.format(table.all_rows)}.`, links: [["All as a table", () => this.page.openTable("group_templates")]] };
  }
}

/** The state of one group at the end of each day from first to last. A day without a record has the state of the day before. */
function statesOf(days, first, last) {
  const found = new Map(days.map((row) => [row.day, row]));
  const hasStates = days.some((row) => row.state !== null);
  let state = null;
  for (const row of days) if (row.day < first && row.state !== null) state = row.state;
  const states = [];
  for (let number = Math.max(first, days[0].day); number <= last; number++) {
    const row = found.get(number);
    if (row?.state) state = row.state;
    else if (state === "gone") state = row ? "offsets alone" : null;
    else if (state === null && (row || !hasStates)) state = "offsets alone";
    if (state !== null) states.push({ day: number, state, rebalances: row?.rebalances ?? 0, commits: row?.commits ?? 0 });
  }
  return states;
}

// ---- The page ----

class Page {
  constructor(data) {
    this.asOf = data.as_of;
    this.warehouse = data.warehouse;
    this.cluster = data.cluster;
    this.gone = new Map(Object.entries(data.gone));
    this.since = data.since;
    this.tables = new Map(data.tables.map((packed) => [packed.name, new Rows(packed, data.texts)]));
    this.views = new Map();
    const known = new Set([...this.groupsIn("owners"), ...this.groupsIn("owner_commits")]);
    this.timelines = data.chosen_groups.filter((group) => known.has(group));
    const withOwners = new Set(this.groupsIn("owners"));
    this.shownGroup = this.timelines.find((group) => withOwners.has(group)) ?? this.timelines[0] ?? null;
    for (const rows of this.tables.values()) {
      const view = new TableView(rows);
      this.views.set(rows.name, view);
      document.querySelector(`#${rows.section} .tables`).append(view.details);
    }
    const pictures = new Pictures(this);
    const ROWS = { calendar: "calendar", group_days: "groupDays", ownership: "ownership", lag: "lag", lag_history: "lagHistory", commit_hours: "commitHours", group_templates: "groupTemplates" };
    const clicked = {
      calendar: (datum) => datum.offsets !== null && this.openTable("expiring", [["first_at", ">=", datum.number * DAY_MS], ["first_at", "<=", (datum.number + 1) * DAY_MS - 1]]),
      group_days: (datum) => datum.group_id !== undefined && (this.showOwners(datum.group_id, true) || this.openTable("group_days", [["group_id", "=", datum.group_id]])),
      lag: (datum) => datum.group_id !== undefined && this.openTable("lag", [["group_id", "=", datum.group_id]]),
    };
    this.pictures = new Map(
      [...document.querySelectorAll("figure[data-chart]")].map((figure) => {
        const name = figure.dataset.chart;
        return [name, new Picture(figure, data.charts[name], () => pictures[ROWS[name]](), clicked[name])];
      }),
    );
    const groups = this.tables.get("groups");
    if (groups.size === groups.all_rows) livingGroups = new Set(this.groupsIn("groups"));
    for (const link of document.querySelectorAll("a[href^='#group/']")) link.classList.toggle("dead", livingGroups !== null && !livingGroups.has(decodeURIComponent(link.getAttribute("href").slice("#group/".length))));
    this.addControls(pictures);
    this.addFinder();
  }

  /** One field for every group, topic, client and host of the page. */
  addFinder() {
    const KINDS = { group_id: "group", topic: "topic", client_id: "client", client_host: "host", member_id: "member" };
    const TABLES = { topic: ["topic_readers", "offsets"], client_id: ["members"], client_host: ["members"], member_id: ["members", "owners"] };
    const input = element("input", { type: "search", placeholder: "Find a group, topic, client or host", "aria-label": "Find a group, topic, client or host" });
    const list = element("ul", { hidden: true, "aria-label": "What has these letters" });
    document.getElementById("find").append(input, list);
    const read = () => {
      const names = new Map();
      for (const rows of this.tables.values())
        for (const [column, kind] of Object.entries(KINDS))
          for (const number of new Set(rows.byName.get(column)?.cells ?? [])) if (number !== null) names.set(`${column} ${number}`, { column, kind, text: rows.texts[number] });
      const order = Object.keys(KINDS);
      return [...names.values()].map((name) => ({ ...name, lower: seen(name.text).toLowerCase() })).sort((one, other) => order.indexOf(one.column) - order.indexOf(other.column));
    };
    const show = ({ column, text }) => {
      const table = [...TABLES[column], ...this.tables.keys()].find((name) => this.tables.get(name).byName.get(column)?.cells.some((number) => this.tables.get(name).texts[number] === text));
      this.leaveGroup();
      if (table) this.openTable(table, [[column, "=", text]]);
    };
    input.addEventListener("input", () => {
      this.names ??= read();
      const wanted = input.value.toLowerCase();
      const found = wanted ? this.names.filter((name) => name.lower.includes(wanted)) : [];
      const rank = ({ lower }) => (lower === wanted ? 0 : lower.startsWith(wanted) ? 1 : 2);
      const first = found.sort((one, other) => rank(one) - rank(other)).slice(0, MOST_FOUND);
      list.hidden = !wanted;
      list.replaceChildren(
        ...first.map((name) => {
          const text = label(name.text, 60);
          const link = name.column === "group_id" ? groupLink(name.text, text) : linkButton(text, () => show(name));
          link.addEventListener("click", () => (list.hidden = true));
          return element("li", {}, link, element("small", { textContent: name.kind }));
        }),
        element("li", { className: "count", textContent: first.length < found.length ? `${wholeNumbers.format(found.length - first.length)} more` : found.length ? "" : "Nothing on this page has these letters." }),
      );
    });
  }

  /** The page of one group: what every table has about it, instead of the other parts. */
  showGroup(group) {
    const section = document.getElementById("group");
    const groups = this.tables.get("groups");
    const at = groups.size ? groups.byName.get("group_id").cells.findIndex((number) => groups.texts[number] === group) : -1;
    const row = at < 0 ? null : groups.object(at);
    const value = (name, text) => (row[name] !== null ? [text(plain(row[name], groups.byName.get(name).kind))] : []);
    const said = row
      ? [`${row.state}, ${row.is_simple ? "simple" : row.group_type}`, counted(row.members, "member"), counted(row.offsets, "committed offset"), ...value("lag", (lag) => `lag ${row.lag_is_partial ? "≥ " : ""}${lag}`), ...value("next_expiry", (time) => `next offset goes ${time}`), ...value("removed_at", (time) => `the group goes ${time}`)].join(", ") + "."
      : `This run does not have the group. ${this.gone.has(group) ? `It was there in the run of ${moment(this.since)}. ${this.gone.get(group)}` : "It was gone before the run of " + (moment(this.since) || "this page") + "."} The command says more.`;
    const ask = (command) => {
      const copy = element("button", { type: "button", textContent: "Copy", "aria-label": `Copy ${command}` });
      const text = ["groupcoord", command, "--group", group, "--warehouse", this.warehouse, "--cluster", this.cluster].map(shellWord).join(" ");
      copy.addEventListener("click", () => navigator.clipboard?.writeText(text).then(() => (copy.textContent = "Copied")));
      return element("div", { className: "ask" }, element("code", { textContent: short(seen(text), 300) }), copy);
    };
    const links = [element("a", { href: "#news", textContent: "← All groups" })];
    if (this.showOwners(group, false)) links.push("  ", linkButton("Who had which partition, as a picture", () => (this.leaveGroup(), this.showOwners(group, true))));
    section.replaceChildren(element("p", {}, ...links), element("h2", { id: "group-title" }, "Group ", element("bdi", { textContent: label(group, 200) })));
    section.append(element("p", { className: row && !["Empty", "Dead"].includes(row.state) ? "" : "dead", textContent: said }));
    if (row?.problems) section.append(element("p", { className: "remark", textContent: row.problems }));
    section.append(ask("why"), ask("timeline"));
    for (const name of [...OF_GROUP, ...[...this.tables.keys()].filter((name) => !OF_GROUP.includes(name) && !NOT_OF_GROUP.includes(name))]) {
      const rows = this.tables.get(name);
      const number = rows.size ? rows.texts.indexOf(group) : -1;
      if (number < 0 || !rows.byName.get("group_id")?.cells.includes(number)) continue;
      const view = new TableView(rows, `group-${name}`, ["group_id"]);
      section.append(view.details);
      view.where = [["group_id", "=", group]];
      view.details.querySelector(".rows").textContent = counted(view.shownRows().length, "row");
      view.details.open = OF_GROUP.includes(name);
    }
    section.hidden = false;
    document.querySelector("main").classList.add("one-group");
    scrollTo(0, 0);
  }

  leaveGroup() {
    document.getElementById("group").hidden = true;
    document.querySelector("main").classList.remove("one-group");
  }

  groupsIn(name) {
    const table = this.tables.get(name);
    const cells = table.byName.get("group_id")?.cells ?? [];
    return [...new Set(cells)].map((number) => table.texts[number]);
  }

  addControls(pictures) {
    const filter = element("input", { type: "search", placeholder: "Find groups", "aria-label": "Find groups by letters of their id" });
    filter.addEventListener("input", () => {
      pictures.groupFilter = filter.value.toLowerCase();
      this.redraw("group_days");
    });
    this.pictures.get("group_days").drawing.before(element("div", { className: "controls" }, filter));
    this.select = element("select", { id: "shown-group" }, ...this.timelines.map((group, at) => element("option", { value: String(at), textContent: label(group, 60) })));
    this.select.addEventListener("change", () => this.showOwners(this.timelines[Number(this.select.value)], true));
    if (this.timelines.length) {
      this.select.value = String(this.timelines.indexOf(this.shownGroup));
      this.pictures.get("ownership").drawing.before(element("div", { className: "controls" }, element("label", { htmlFor: "shown-group", textContent: "Group" }), this.select));
    }
  }

  openTable(name, where = []) {
    this.views.get(name).open(where);
  }

  /** Whether the group has a timeline; with show, shows it. */
  showOwners(group, show) {
    const at = this.timelines.indexOf(group);
    if (at < 0) return false;
    if (show) {
      this.shownGroup = group;
      this.select.value = String(at);
      this.redraw("ownership");
      document.getElementById("owners").scrollIntoView({ block: "start" });
    }
    return true;
  }

  async redraw(name) {
    await this.pictures.get(name).draw();
  }

  async drawAll() {
    for (const picture of this.pictures.values()) {
      await picture.draw();
      await new Promise((resolve) => setTimeout(resolve));
    }
  }

  follow(hash, where) {
    if (hash.startsWith("#group/")) {
      this.showGroup(decodeURIComponent(hash.slice("#group/".length)));
      return true;
    }
    this.leaveGroup();
    const name = hash.replace(/^#table-/, "");
    if (name === hash || !this.views.has(name)) return false;
    this.openTable(name, where);
    return true;
  }
}

async function start() {
  const page = new Page(JSON.parse(await unpacked("data")));
  window.groupcoordReport = page;
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#table-']");
    if (link && page.follow(link.getAttribute("href"), JSON.parse(link.dataset.where ?? "[]"))) event.preventDefault();
  });
  document.getElementById("licences").addEventListener("toggle", async (event) => (event.target.querySelector("pre").textContent = await unpacked("licence-texts")), { once: true });
  document.body.append(element("script", { textContent: await unpacked("library") }));
  await page.drawAll();
  page.follow(location.hash, []);
  addEventListener("hashchange", () => !page.follow(location.hash, []) && document.querySelector(location.hash || "body")?.scrollIntoView());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.drawAll());
  let width = document.documentElement.clientWidth;
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (width !== document.documentElement.clientWidth) page.drawAll();
      width = document.documentElement.clientWidth;
    }, 150);
  });
  document.documentElement.dataset.shownAfter = Math.round(performance.now());
}

start().catch((error) => {
  const place = document.getElementById("failure");
  place.hidden = false;
  place.textContent =
    typeof DecompressionStream === "undefined"
      ? "This browser cannot show the pictures and tables: it has no DecompressionStream. Chrome and Edge have it since 80, Firefox since 113, Safari since 16.4."
      : `The pictures and tables cannot be shown: ${error.message}`;
  console.error(error);
});
