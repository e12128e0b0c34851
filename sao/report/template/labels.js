// What a person says of the samples: names of groups, groups that belong together, labels of single samples; as a file.

class Labels {
  constructor(run) {
    const { map } = run;
    this.names = map.names;
    this.group = unpacked(map.groups, Uint16Array);
    this.groups = run.groups.length;
    this.into = Array.from({ length: this.groups }, (_, i) => i); // which group each was merged into
    this.called = Array(this.groups).fill(""); // names of groups
    this.own = new Map(); // labels of single samples; "" takes away that of the group
    this.listeners = [];
    this.key = `sao labels of ${run.name}, ${fingerprint(map.names)}`;
    this._restore();
  }

  root(group) {
    while (this.into[group] !== group) group = this.into[group];
    return group;
  }

  groupOf(i) { return this.root(this.group[i]); }

  groupName(group) { return this.called[this.root(group)] || `group ${this.root(group) + 1}`; }

  of(i) { return this.own.has(i) ? this.own.get(i) : this.called[this.groupOf(i)]; }

  /** Every label with how many samples have it, the commonest first. */
  counts() {
    const found = new Map();
    for (let i = 0; i < this.names.length; i++) {
      const label = this.of(i);
      if (label) found.set(label, (found.get(label) || 0) + 1);
    }
    return [...found].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  }

  nameGroup(group, name) {
    this.called[this.root(group)] = name.trim();
    this._changed();
  }

  merge(group, other) {
    const [from, to] = [this.root(group), this.root(other)];
    if (from === to) return;
    this.into[from] = to;
    this.called[to] = this.called[to] || this.called[from];
    this._changed();
  }

  split(group) {
    for (let i = 0; i < this.groups; i++) if (this.root(i) === group && i !== group) this.into[i] = i;
    this._changed();
  }

  label(indices, label) {
    for (const i of indices) this.own.set(i, label.trim());
    this._changed();
  }

  clear() {
    this.into = this.into.map((_, i) => i);
    this.called.fill("");
    this.own.clear();
    this._changed();
  }

  /** name,label of every labelled sample: RFC 4180, a mark for spreadsheets that it is UTF-8, and no formulas. */
  csv() {
    const rows = [["name", "label"]];
    this.names.forEach((name, i) => { if (this.of(i)) rows.push([name, this.of(i)]); });
    return "\ufeff" + rows.map((row) => row.map(csvCell).join(",") + "\r\n").join("");
  }

  /** Labels of a file; how many were taken, and how many names are of no sample here. */
  read(text) {
    const rows = csvRows(text.replace(/^\ufeff/, ""));
    const head = rows.length ? rows[0].map((cell) => cell.trim().toLowerCase()) : [];
    const [name, label] = [head.indexOf("name"), head.indexOf("label")];
    if (name < 0 || label < 0) throw new Error("its first line must have the columns name and label");
    const places = new Map(this.names.map((one, i) => [one, i]));
    let taken = 0, unknown = 0;
    for (const row of rows.slice(1)) {
      if (row.length <= Math.max(name, label)) continue;
      const i = places.get(withoutMark(row[name]));
      if (i === undefined) unknown++;
      else { this.own.set(i, withoutMark(row[label]).trim()); taken++; }
    }
    this._changed();
    return { taken, unknown };
  }

  _changed() {
    try {
      const empty = !this.own.size && this.called.every((name) => !name) && this.into.every((to, i) => to === i);
      if (empty) localStorage.removeItem(this.key);
      else localStorage.setItem(this.key, JSON.stringify({ into: this.into, called: this.called, own: [...this.own] }));
    } catch { /* a browser that keeps nothing: the file is what counts */ }
    for (const listener of this.listeners) listener();
  }

  _restore() {
    try {
      const kept = JSON.parse(localStorage.getItem(this.key));
      const whole = kept && kept.into.length === this.groups && kept.called.length === this.groups
        && kept.into.every((to) => Number.isInteger(to) && to >= 0 && to < this.groups);
      if (!whole) return;
      Object.assign(this, { into: kept.into, called: kept.called.map(String), own: new Map(kept.own) });
    } catch { /* nothing was kept, or something else */ }
  }
}

/** A text that a spreadsheet would compute gets an apostrophe, as every table of sao has it. */
const FORMULA = /^'*[=+\-@＝＋－＠\t\r\n]/;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

function csvCell(text) {
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function withoutMark(cell) {
  return cell.startsWith("'") && FORMULA.test(cell) ? cell.slice(1) : cell;
}

function csvRows(text) {
  const rows = [[]];
  let cell = "", quoted = false, i = 0;
  const endCell = () => { rows[rows.length - 1].push(cell); cell = ""; };
  for (; i < text.length; i++) {
    const letter = text[i];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[i + 1] === '"') { cell += '"'; i++; } else quoted = false;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === ",") endCell();
    else if (letter === "\n" || (letter === "\r" && text[i + 1] === "\n")) {
      endCell();
      rows.push([]);
      if (letter === "\r") i++;
    } else cell += letter;
  }
  if (cell || rows[rows.length - 1].length) endCell(); else rows.pop();
  return rows;
}

function fingerprint(names) {
  let hash = 5381;
  for (const name of names) for (let i = 0; i < name.length; i++) hash = (hash * 33 ^ name.charCodeAt(i)) >>> 0;
  return hash.toString(36);
}

/** The labels that there are, and the way out of the page and into it. */
function labelTools(labels) {
  const list = element("div", { class: "keys" });
  const said = element("span", { class: "faint", role: "status" });
  const save = element("button", { type: "button", class: "export", onclick: () => saveFile("labels.csv", labels.csv(), "text/csv") }, "Save labels.csv");
  const file = element("input", { type: "file", accept: ".csv,text/csv", class: "hidden", tabindex: "-1", "aria-label": "A file of labels", onchange: async () => {
    try {
      const { taken, unknown } = labels.read(await file.files[0].text());
      said.textContent = `${count(taken, "label")} taken${unknown ? `; ${count(unknown, "name")} of no image here` : ""}`;
    } catch (error) { said.textContent = `This file was not taken: ${error.message}`; }
    file.value = "";
  } });
  const load = element("button", { type: "button", class: "import", onclick: () => file.click() }, "Open labels.csv…");
  const clear = element("button", { type: "button", onclick: () => { if (confirm("Take away all names and labels?")) labels.clear(); } }, "Clear");
  const draw = () => {
    const counts = labels.counts();
    const total = counts.reduce((sum, [, size]) => sum + size, 0);
    save.disabled = clear.disabled = !total;
    list.replaceChildren(...counts.slice(0, 40).map(([label, size]) => element("span", { class: "key" }, isolated(label), element("small", {}, size.toLocaleString("en")))));
    if (!said.textContent || !total) said.textContent = total ? "" : "Name a group, or draw around images on the map and label them.";
  };
  labels.listeners.push(draw);
  draw();
  return element("div", { class: "label-tools" }, element("h4", {}, "Labels"), list, element("div", { class: "row" }, save, load, clear, file), said);
}

function saveFile(name, text, type) {
  const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` })) });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** The labels that are known already, to choose from while typing. */
function knownLabels(labels, id) {
  const known = element("datalist", { id });
  const draw = () => known.replaceChildren(...labels.counts().map(([label]) => element("option", { value: label })));
  labels.listeners.push(draw);
  draw();
  return known;
}

function labelField(id, words) {
  return element("input", { type: "text", class: "label-name", list: id, placeholder: "Label…", "aria-label": words, maxlength: "200" });
}
