// A map with what moves it and what can be asked of it: pointer, wheel, keys, colours, search, lasso.

const LISTED = 60; // names of a search that become buttons

class MapPanel {
  constructor(run) {
    this.run = run;
    this.labels = new Labels(run);
    this.view = new MapView(run.map, this.labels);
    this.knownLabels = `labels-${panels.size}`;
    this.pinned = -1;
    this.cursor = -1;
    this.tool = "move";
    this.touching = new Map(); // places of the pointers that are down, by their numbers
    this.canvas = element("canvas", {
      tabindex: "0", role: "application", "aria-roledescription": "map",
      "aria-label": `Map of ${count(this.view.real, "sample")} by ${run.map.by}. Arrow keys move it, plus and minus zoom, `
        + "0 shows all, N and P go from sample to sample, Enter opens one.",
    });
    this.painter = new MapPainter(this.canvas, this.view);
    this.tip = element("div", { class: "map-tip", hidden: true, "aria-hidden": "true" });
    this.stage = element("div", { class: "stage" }, this.canvas, this.tip, this._buttons());
    this.legend = element("div", { class: "legend" });
    this.details = element("div", { class: "details" });
    this.results = element("div", { class: "results" });
    this.chosen = element("div", { class: "chosen" });
    this.element = element("div", { class: "map" }, this._controls(), this.stage,
      element("aside", { "aria-label": "About the map" }, this._search(), this.details, this.chosen, this.legend, labelTools(this.labels), knownLabels(this.labels, this.knownLabels)));
    this._listen();
    this._drawLegend();
    this._describe(-1);
    this.labels.listeners.push(() => { this._recolour(this.view.by); this._describe(this.pinned); });
    new ResizeObserver(() => this._resize()).observe(this.stage);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; if (this.painter.image) this.painter.paint(); });
  }

  _resize() {
    const width = this.stage.clientWidth, height = this.stage.clientHeight;
    if (!width || !height) return;
    const untouched = !this.painter.image || Math.abs(this.view.zoom - 1) < 1e-9;
    this.painter.resize(width, height);
    if (untouched) this.view.fit();
    this.painter.paint();
  }

  _controls() {
    const ways = [["group", "group"]];
    if (this.view.labels) ways.push(["class", "class"]);
    ways.push(["label", "your labels"]);
    if (this.view.heldOutBits) ways.push(["split", "training or held out"]);
    if (this.view.norms) ways.push(["norm", "Jacobian norm"]);
    const colour = element("select", { "aria-label": "Colour by", class: "colour-by", onchange: () => this._recolour(colour.value) },
      ways.map(([value, word]) => element("option", { value }, word)));
    const tools = ["move", "lasso"].map((tool) => element("button", {
      type: "button", class: "tool", "data-tool": tool, "aria-pressed": String(tool === this.tool), onclick: () => this._use(tool),
      title: tool === "lasso" ? "Draw around samples (or hold Shift)" : "Drag the map",
    }, tool === "move" ? "Move" : "Lasso"));
    const parts = [element("label", {}, "Colour by ", colour), element("div", { class: "tools", role: "group", "aria-label": "Pointer" }, tools)];
    if (this.view.total > this.view.real) {
      const box = element("input", { type: "checkbox", class: "generated", onchange: () => this._showGenerated(box.checked) });
      parts.push(element("label", {}, box, ` generated samples (${(this.view.total - this.view.real).toLocaleString("en")})`));
    }
    return element("div", { class: "controls" }, parts);
  }

  _buttons() {
    const button = (word, label, action) => element("button", { type: "button", "aria-label": label, title: label, onclick: action }, word);
    return element("div", { class: "zoom" },
      button("+", "Closer", () => this._zoom(1.6)), button("−", "Further", () => this._zoom(1 / 1.6)), button("⤢", "Show all", () => this._all()));
  }

  _search() {
    const field = element("input", { type: "search", class: "search", placeholder: "Search names…", "aria-label": "Search samples by name",
      oninput: () => this._find(field.value) });
    return element("div", {}, field, this.results);
  }

  _listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => this._down(event));
    canvas.addEventListener("pointermove", (event) => this._move(event));
    canvas.addEventListener("pointerup", (event) => this._up(event));
    canvas.addEventListener("pointercancel", (event) => { this.touching.delete(event.pointerId); this._letGo(); });
    canvas.addEventListener("pointerleave", () => this._hover(-1));
    canvas.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this._key(event));
    canvas.addEventListener("dblclick", (event) => this._zoom(2, event.offsetX, event.offsetY));
    this.stage.addEventListener("focusin", () => this.stage.classList.add("active"));
    this.stage.addEventListener("focusout", () => this.stage.classList.remove("active"));
  }

  _down(event) {
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.touching.set(event.pointerId, [event.offsetX, event.offsetY]);
    if (this.touching.size > 1) { this._letGo(); return; } // two fingers move and zoom
    const lasso = this.tool === "lasso" || event.shiftKey;
    this.drag = { x: event.offsetX, y: event.offsetY, moved: false, lasso };
    if (lasso) this.painter.lasso = [event.offsetX, event.offsetY];
  }

  _letGo() {
    this.drag = null;
    this.painter.lasso = null;
    this.draw();
  }

  /** What was under each of two fingers stays under it. */
  _pinch(event) {
    const middle = ([[ax, ay], [bx, by]]) => [(ax + bx) / 2, (ay + by) / 2, Math.max(1, Math.hypot(ax - bx, ay - by))];
    const [x, y, apart] = middle([...this.touching.values()]);
    this.touching.set(event.pointerId, [event.offsetX, event.offsetY]);
    const [nextX, nextY, nextApart] = middle([...this.touching.values()]);
    this.view.pan(nextX - x, nextY - y);
    this.view.zoomBy(nextApart / apart, nextX, nextY);
    this.draw();
  }

  _move(event) {
    const { drag } = this;
    if (this.touching.size === 2 && this.touching.has(event.pointerId)) { this._pinch(event); return; }
    if (!drag) {
      if (event.pointerType !== "touch") this._hover(this.view.nearest(event.offsetX, event.offsetY));
      return;
    }
    const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
    drag.moved = drag.moved || Math.hypot(dx, dy) > 3;
    if (drag.lasso) this.painter.lasso.push(event.offsetX, event.offsetY);
    else if (drag.moved) {
      this.view.pan(dx, dy);
      Object.assign(drag, { x: event.offsetX, y: event.offsetY });
    }
    this._hover(-1);
    this.draw();
  }

  _up(event) {
    const { drag } = this;
    this.drag = null;
    this.touching.delete(event.pointerId);
    if (!drag) return;
    const polygon = this.painter.lasso;
    this.painter.lasso = null;
    if (drag.lasso && drag.moved && polygon.length >= 6) this._choose(this.view.inside(polygon));
    else if (!drag.moved) this._pin(this.view.nearest(event.offsetX, event.offsetY, event.pointerType === "touch" ? 20 : 12));
    this.draw();
  }

  /** A page that scrolls past a map must not be caught by it: the wheel zooms once the map has been clicked. */
  _wheel(event) {
    if (!event.ctrlKey && document.activeElement !== this.canvas) return;
    event.preventDefault();
    this.view.zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0018)), event.offsetX, event.offsetY);
    this.draw();
  }

  _zoom(factor, x, y) {
    this.view.zoomBy(factor, x, y);
    this.draw();
  }

  _all() {
    this.view.fit();
    this.draw();
  }

  _key(event) {
    const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (steps[key]) this.view.pan(...steps[key]);
    else if (key === "+" || key === "=") this.view.zoomBy(1.6);
    else if (key === "-") this.view.zoomBy(1 / 1.6);
    else if (key === "0") this.view.fit();
    else if (key === "n" || key === "p") this._step(key === "n" ? 1 : -1);
    else if (key === "Enter" && this.cursor >= 0) openSample(this, this.cursor);
    else if (key === "Escape") { this._pin(-1); this._choose(null); }
    else return;
    event.preventDefault();
    this.draw();
  }

  /** The next shown sample in order, for who moves by keys. */
  _step(by) {
    let i = this.cursor;
    for (let tried = 0; tried < this.view.total; tried++) {
      i = (i + by + this.view.total) % this.view.total;
      if (!this.view.hidden[i] && (!this.view.marked || this.view.marked[i])) break;
    }
    this.cursor = i;
    const x = this.view.screenX(i), y = this.view.screenY(i);
    if (x < 20 || y < 20 || x > this.view.width - 20 || y > this.view.height - 20) {
      this.view.centreX = this.view.x[i];
      this.view.centreY = this.view.y[i];
    }
    this.painter.current = i;
    this._describe(i);
    say(sampleWords(this.view, i));
  }

  _hover(i) {
    if (i === this.hovered) return;
    this.hovered = i;
    this.painter.current = i >= 0 ? i : this.pinned;
    this.canvas.style.cursor = i >= 0 ? "pointer" : this.tool === "lasso" ? "crosshair" : "grab";
    this.tip.hidden = i < 0;
    if (i >= 0) {
      this.tip.replaceChildren(...sampleCard(this.view, i, 120, 58));
      const x = this.view.screenX(i), y = this.view.screenY(i);
      const box = this.tip.getBoundingClientRect(), gap = this.view.sheet && this.view.pictured(i) ? this.view.side() / 2 + 10 : 16;
      const left = x + gap + box.width < this.view.width ? x + gap : Math.max(4, x - gap - box.width);
      this.tip.style.left = `${left}px`;
      this.tip.style.top = `${Math.max(4, Math.min(this.view.height - box.height - 4, y - box.height / 2))}px`;
    }
    this.draw();
  }

  _pin(i) {
    this.pinned = this.cursor = i;
    this.painter.current = i;
    this._describe(i);
    if (i >= 0) say(sampleWords(this.view, i));
    this.draw();
  }

  /** A name or a neighbour was chosen: show where it lies. */
  goTo(i) {
    if (this.view.isGenerated(i) && !this.view.generatedShown) {
      this.element.querySelector(".generated").checked = true;
      this._showGenerated(true);
    }
    this.view.centreOn(i);
    this._pin(i);
  }

  _describe(i) {
    if (i < 0) {
      this.details.replaceChildren(element("p", { class: "faint" },
        "Point at an image to see it with the most similar ones; click to keep it here. Scroll to zoom once the map is clicked. Lasso, or Shift, draws around images to label them."));
    } else {
      this.details.replaceChildren(...sampleCard(this.view, i, 132, 60, (j) => this.goTo(j)));
    }
  }

  _recolour(what) {
    this.view.colourBy(what);
    this._drawLegend();
    this.draw();
  }

  _showGenerated(shown) {
    const untouched = Math.abs(this.view.zoom - 1) < 1e-9;
    this.view.generatedShown = shown;
    this.view.filter();
    if (untouched) this.view.fit();
    this.draw();
  }

  _use(tool) {
    this.tool = tool;
    this.canvas.style.cursor = tool === "lasso" ? "crosshair" : "grab";
    for (const button of this.element.querySelectorAll(".tool")) button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
  }

  _drawLegend() {
    const { view } = this;
    if (view.by === "norm") {
      const known = view.knownNorms < view.real ? `, known of ${count(view.knownNorms, "sample")}` : "";
      const bar = element("div", { class: "ramp", style: `background: linear-gradient(90deg, ${SCALE.map(css).join(", ")})` });
      this.legend.replaceChildren(element("div", { class: "faint" }, `Jacobian norm σ${known}`), bar,
        element("div", { class: "ends" }, element("span", {}, shortNumber(view.lowNorm)), element("span", {}, shortNumber(view.highNorm))));
      return;
    }
    const sizes = new Map();
    for (let i = 0; i < view.real; i++) sizes.set(view.category(i), (sizes.get(view.category(i)) || 0) + 1);
    this.legend.replaceChildren(element("h4", {}, view.by === "label" && !view.categories().length ? "No labels yet" : "Click to hide or show"), element("div", { class: "keys" },
      view.categories().map((name, category) => this._key_of(name, category, sizes.get(category) || 0)).filter(Boolean)));
  }

  _key_of(name, category, size) {
    if (!size) return null;
    const on = !this.view.off.has(category);
    const button = element("button", { type: "button", class: "key", "aria-pressed": String(on), onclick: () => {
      const shown = this.view.off.has(category);
      if (shown) this.view.off.delete(category); else this.view.off.add(category);
      button.setAttribute("aria-pressed", String(shown));
      this.view.filter();
      this.draw();
    } }, swatch(category), isolated(name), element("small", {}, size.toLocaleString("en")));
    return button;
  }

  /** Show where some samples lie. */
  choose(indices) {
    this.view.fit();
    this._choose(indices, false);
    this.element.scrollIntoView({ block: "nearest" });
  }

  _find(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) {
      this.results.replaceChildren();
      this.view.mark(this.choice || null);
      this.draw();
      return;
    }
    const found = [];
    for (let i = 0; i < this.view.real; i++) if (this.view.names[i].toLowerCase().includes(wanted)) found.push(i);
    this.view.mark(found);
    const buttons = found.slice(0, LISTED).map((i) => element("li", {},
      element("button", { type: "button", class: "link", onclick: () => this.goTo(i) }, isolated(this.view.names[i]))));
    const more = found.length > LISTED ? `, the first ${LISTED} are listed` : "";
    this.results.replaceChildren(element("div", { class: "faint", role: "status" }, `${count(found.length, "sample")} found${more}`), element("ul", {}, buttons));
    this.draw();
  }

  /** What the lasso took, or a group: to be labelled, or copied as names. */
  _choose(indices, focus = true) {
    this.choice = indices && indices.length ? indices : null;
    this.view.mark(this.choice);
    if (!indices) { this.chosen.replaceChildren(); this.draw(); return; }
    const names = indices.map((i) => this.view.name(i));
    const text = names.join("\n") + (names.length ? "\n" : "");
    const area = element("textarea", { readonly: true, rows: 8, "aria-label": "Names of the chosen samples" });
    area.value = text;
    const copy = element("button", { type: "button", class: "copy", onclick: () => this._copy(area, copy) }, "Copy");
    const save = element("button", { type: "button", class: "save", onclick: () => saveFile("names.txt", text, "text/plain") }, "Save");
    const clear = element("button", { type: "button", onclick: () => this._choose(null) }, "Let go");
    const strip = element("div", { class: "strip" }, indices.slice(0, 12).map((i) => sampleButton(this, i, 60)));
    const field = labelField(this.knownLabels, "Label of the chosen samples");
    const real = indices.filter((i) => i < this.view.real);
    const label = element("form", { class: "row label-form", onsubmit: (event) => {
      event.preventDefault();
      this.labels.label(real, field.value);
      say(`${count(real.length, "sample")} labelled ${field.value}`);
      this._choose(null);
    } }, field, element("button", { type: "submit", class: "primary" }, "Label"));
    this.chosen.replaceChildren(element("h4", {}, `${count(indices.length, "sample")} chosen`), this.view.sheet ? strip : "", label,
      element("details", {}, element("summary", {}, "Names"), area, element("div", { class: "row" }, copy, save)), clear);
    if (focus) field.focus({ preventScroll: true });
    say(`${count(indices.length, "sample")} chosen`);
    this.draw();
  }

  async _copy(area, button) {
    try {
      await navigator.clipboard.writeText(area.value);
    } catch {
      area.select(); // without permission, as from a file: the older way
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }
}
