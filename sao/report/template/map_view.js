// The state of a map: where its points are, which are shown in which colour, and what of it is in view.

const WIDTH = 65535; // of the rectangle that places are given in
const MOST_STRETCHED = 1.7; // of one axis, to fill a narrow screen: pictures then lie further apart, never nearer

class MapView {
  constructor(described, labels) {
    const drawn = described.generated;
    this.described = described;
    this.labelled = labels; // what the person says
    this.real = described.count;
    this.total = described.count + (drawn ? drawn.count : 0);
    this.x = new Float32Array(this.total);
    this.y = new Float32Array(this.total);
    this.clear = new Float32Array(this.total); // how large a picture there may be before it touches another one
    this.groups = new Uint16Array(this.total);
    this.colours = new Uint8Array(3 * this.total);
    this.hidden = new Uint8Array(this.total);
    this.marked = null; // a Uint8Array: what was chosen or searched for; the rest is drawn faintly
    this.names = described.names;
    this.classes = described.classes;
    this.labels = described.labels ? unpacked(described.labels, Uint16Array) : null;
    this.norms = described.norms ? unpacked(described.norms, Float32Array) : null;
    this.heldOutBits = described.held_out ? unpacked(described.held_out, Uint8Array) : null;
    this.sheet = described.sheet;
    this.drawnSheet = drawn ? drawn.sheet : null;
    this.generatedShown = false;
    this._place(described, 0);
    if (drawn) this._place(drawn, this.real);
    this._neighbours = [unpacked(described.neighbours, Uint16Array), drawn ? unpacked(drawn.neighbours, Uint16Array) : null];
    this._each = [this._neighbours[0].length / this.real, drawn ? this._neighbours[1].length / drawn.count : 0];
    this._similar = unpacked(described.similarities, Int8Array);
    this.off = new Set(); // categories that the legend switched off
    this.colourBy("group");
    this.resize(800, 560, 1);
    this.fit();
  }

  _place(described, start) {
    const places = unpacked(described.places, Uint16Array);
    const clearances = unpacked(described.clearances, Uint16Array);
    const groups = unpacked(described.groups, Uint16Array);
    for (let i = 0; i < groups.length; i++) {
      this.x[start + i] = places[2 * i] / WIDTH;
      this.y[start + i] = places[2 * i + 1] / WIDTH;
      this.clear[start + i] = clearances[i] / WIDTH;
      this.groups[start + i] = groups[i];
    }
  }

  isGenerated(i) { return i >= this.real; }

  isHeldOut(i) { return Boolean(this.heldOutBits) && i < this.real && (this.heldOutBits[i >> 3] >> (i & 7) & 1) === 1; }

  name(i) { return i < this.real ? this.names[i] : `generated ${i - this.real}`; }

  /** Where its file lies, relative to this page. */
  link(i) {
    const { links } = this.described;
    if (!links || i >= this.real) return null;
    if (links.rest === null) return links.start + this.names[i].split("/").map(escapedPart).join("/");
    return links.rest[i] === null ? null : links.start + links.rest[i];
  }

  neighbours(i) {
    const which = i < this.real ? 0 : 1;
    const first = (i - which * this.real) * this._each[which];
    return Array.from(this._neighbours[which].subarray(first, first + this._each[which]));
  }

  /** The cosine with its n-th neighbour. */
  similarity(i, n) { return i < this.real ? this._similar[i * this._each[0] + n] / 127 : null; }

  sheetOf(i) { return i < this.real ? [this.sheet, i] : [this.drawnSheet, i - this.real]; }

  groupOf(i) { return this.labelled.root(this.groups[i]); }

  /** The category of a point in what the map is coloured by; -1 where it has none. */
  category(i) {
    if (this.by === "group") return this.groupOf(i);
    if (i >= this.real) return -1;
    if (this.by === "class") return this.labels[i];
    if (this.by === "split") return this.isHeldOut(i) ? 1 : 0;
    if (this.by === "label") return this._categoryOfLabel.get(this.labelled.of(i)) ?? -1;
    return -1;
  }

  categories() {
    if (this.by === "group") return Array.from({ length: this.labelled.groups }, (_, i) => this.labelled.groupName(i));
    if (this.by === "class") return this.classes;
    if (this.by === "split") return ["training", "held out"];
    return this.by === "label" ? [...this._categoryOfLabel.keys()] : [];
  }

  colourBy(what) {
    if (what !== this.by) this.off.clear();
    this.by = what;
    if (what === "norm") this._rangeOfNorms();
    if (what === "label") this._categoryOfLabel = new Map(this.labelled.counts().map(([label], place) => [label, place]));
    for (let i = 0; i < this.total; i++) this.colours.set(this._colour(i), 3 * i);
    this.filter();
  }

  _rangeOfNorms() {
    const known = Array.from(this.norms).filter(Number.isFinite).sort((a, b) => a - b);
    this.lowNorm = known[Math.floor(0.02 * (known.length - 1))];
    this.highNorm = known[Math.ceil(0.98 * (known.length - 1))];
    this.knownNorms = known.length;
  }

  _colour(i) {
    if (this.by === "norm") {
      const norm = i < this.real ? this.norms[i] : NaN;
      return Number.isFinite(norm) ? scaleColour((norm - this.lowNorm) / (this.highNorm - this.lowNorm || 1)) : [150, 150, 155];
    }
    const category = this.category(i);
    return category < 0 ? [150, 150, 155] : categoryColour(category);
  }

  /** Which points are drawn at all: categories can be switched off, and generated samples on. */
  filter() {
    for (let i = 0; i < this.total; i++) {
      this.hidden[i] = (i >= this.real && !this.generatedShown) || this.off.has(this.category(i)) ? 1 : 0;
    }
  }

  mark(indices) {
    if (indices === null) { this.marked = null; return; }
    this.marked = new Uint8Array(this.total);
    for (const i of indices) this.marked[i] = 1;
  }

  resize(width, height, ratio) {
    Object.assign(this, { width, height, ratio });
  }

  /** All of it, with room for the pictures at its edges. */
  fit() {
    let [left, right, top, bottom] = [1, 0, 1, 0];
    for (let i = 0; i < (this.generatedShown ? this.total : this.real); i++) {
      left = Math.min(left, this.x[i]); right = Math.max(right, this.x[i]);
      top = Math.min(top, this.y[i]); bottom = Math.max(bottom, this.y[i]);
    }
    const edge = this.sheet ? this.firstSide() + 8 : 24;
    this.centreX = (left + right) / 2;
    this.centreY = (top + bottom) / 2;
    const across = (this.width - edge) / (right - left || 1), down = (this.height - edge) / (bottom - top || 1);
    this.fitted = Math.min(across, down);
    this.stretchX = Math.min(MOST_STRETCHED, across / this.fitted);
    this.stretchY = Math.min(MOST_STRETCHED, down / this.fitted);
    this.scale = this.fitted;
  }

  get zoom() { return this.scale / this.fitted; }

  /** Pixels of a picture's longer side when all is in view. */
  firstSide() { return Math.max(36, Math.min(56, Math.min(this.width, this.height) / 12)); }

  /** The same now: pictures grow slower than the map, so that more of them appear. */
  side() {
    const sheet = sheets.get(this.sheet);
    const native = sheet ? Math.max(sheet.width, sheet.height) : 60;
    return Math.min(Math.max(this.firstSide(), native), this.firstSide() * Math.max(0.7, this.zoom ** 0.16));
  }

  /** Whether a point is a picture now, and not a dot. */
  pictured(i, side = this.side()) { return this.clear[i] * this.scale >= side + 5; }

  screenX(i) { return (this.x[i] - this.centreX) * this.scale * this.stretchX + this.width / 2; }

  screenY(i) { return (this.y[i] - this.centreY) * this.scale * this.stretchY + this.height / 2; }

  pan(dx, dy) {
    this.centreX -= dx / this.scale / this.stretchX;
    this.centreY -= dy / this.scale / this.stretchY;
  }

  /** Closer or further, with the place under (x, y) staying there. */
  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    const scale = Math.max(this.fitted * 0.5, Math.min(this.fitted * 200, this.scale * factor));
    const change = 1 / this.scale - 1 / scale;
    this.centreX += (x - this.width / 2) * change / this.stretchX;
    this.centreY += (y - this.height / 2) * change / this.stretchY;
    this.scale = scale;
  }

  /** Show a point in the middle, near enough to see its picture. */
  centreOn(i) {
    this.centreX = this.x[i];
    this.centreY = this.y[i];
    const needed = this.clear[i] > 0 ? 1.3 * this.firstSide() * 1.6 / this.clear[i] : 0;
    this.scale = Math.max(this.scale, Math.min(needed || this.fitted * 8, this.fitted * 40), this.fitted * 2);
  }

  /** Numbers of the points in view, into a list that is used again. */
  inView(margin = 0) {
    this._list = this._list || new Int32Array(this.total);
    const halfWidth = (this.width / 2 + margin) / this.scale / this.stretchX, halfHeight = (this.height / 2 + margin) / this.scale / this.stretchY;
    let found = 0;
    for (let i = 0; i < this.total; i++) {
      if (!this.hidden[i] && Math.abs(this.x[i] - this.centreX) <= halfWidth && Math.abs(this.y[i] - this.centreY) <= halfHeight) {
        this._list[found++] = i;
      }
    }
    return this._list.subarray(0, found);
  }

  /** The picture under a place on the screen, or else the nearest dot. */
  nearest(x, y, reach = 12) {
    const side = this.side(), half = side / 2 + 2;
    let best = -1, least = reach;
    for (const i of this.inView(half)) {
      const dx = Math.abs(this.screenX(i) - x), dy = Math.abs(this.screenY(i) - y);
      if (this.sheet && this.pictured(i, side) && dx <= half && dy <= half) return i;
      const distance = Math.hypot(dx, dy);
      if (distance < least) { least = distance; best = i; }
    }
    return best;
  }

  /** The shown points inside a polygon [x, y, x, y, …] on the screen. */
  inside(polygon) {
    const found = [];
    for (const i of this.inView()) {
      const x = this.screenX(i), y = this.screenY(i);
      let within = false;
      for (let a = 0, b = polygon.length - 2; a < polygon.length; b = a, a += 2) {
        const crosses = polygon[a + 1] > y !== polygon[b + 1] > y;
        if (crosses && x < (polygon[b] - polygon[a]) * (y - polygon[a + 1]) / (polygon[b + 1] - polygon[a + 1]) + polygon[a]) within = !within;
      }
      if (within) found.push(i);
    }
    return found;
  }
}

/** A part of a path in an address; also what encodeURIComponent leaves alone. */
function escapedPart(part) {
  return encodeURIComponent(part).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
}
