// The state of a map: where its points are, which are shown in which colour, and what of it is in view.

class MapView {
  constructor(described) {
    const drawn = described.generated;
    this.real = described.count;
    this.total = described.count + (drawn ? drawn.count : 0);
    this.x = new Float32Array(this.total);
    this.y = new Float32Array(this.total);
    this.clusters = new Uint16Array(this.total);
    this.colours = new Uint8Array(3 * this.total);
    this.hidden = new Uint8Array(this.total);
    this.marked = null; // a Uint8Array: what was chosen or searched for; the rest is drawn faintly
    this.names = described.names;
    this.classes = described.classes;
    this.labels = described.labels ? unpacked(described.labels, Uint16Array) : null;
    this.norms = described.norms ? unpacked(described.norms, Float32Array) : null;
    this.sheet = described.sheet;
    this.drawnSheet = drawn ? drawn.sheet : null;
    this.generatedShown = false;
    this._place(described, 0);
    if (drawn) this._place(drawn, this.real);
    this._neighbours = [unpacked(described.neighbours, Uint16Array), drawn ? unpacked(drawn.neighbours, Uint16Array) : null];
    this._each = [this._neighbours[0].length / this.real, drawn ? this._neighbours[1].length / drawn.count : 0];
    this.clusterCount = this.clusters.reduce((a, b) => Math.max(a, b), 0) + 1;
    this.off = new Set(); // categories that the legend switched off
    this.spacing = this._usualSpacing();
    this.colourBy("cluster");
    this.resize(800, 560, 1);
    this.fit();
  }

  _place(described, start) {
    const places = unpacked(described.places, Uint16Array);
    const clusters = unpacked(described.clusters, Uint16Array);
    for (let i = 0; i < clusters.length; i++) {
      this.x[start + i] = places[2 * i] / 65535;
      this.y[start + i] = places[2 * i + 1] / 65535;
      this.clusters[start + i] = clusters[i];
    }
  }

  /** The median distance from a point to its nearest, of some points. */
  _usualSpacing() {
    const found = [];
    const stride = Math.max(1, Math.floor(this.real / 200));
    for (let i = 0; i < this.real; i += stride) {
      let least = Infinity;
      for (let j = 0; j < this.real; j++) {
        const distance = (this.x[i] - this.x[j]) ** 2 + (this.y[i] - this.y[j]) ** 2;
        if (j !== i && distance < least) least = distance;
      }
      found.push(Math.sqrt(least));
    }
    found.sort((a, b) => a - b);
    return Math.max(found[Math.floor(found.length / 2)] || 0.01, 1e-4);
  }

  isGenerated(i) { return i >= this.real; }

  name(i) { return i < this.real ? this.names[i] : `generated ${i - this.real}`; }

  neighbours(i) {
    const which = i < this.real ? 0 : 1;
    const first = (i - which * this.real) * this._each[which];
    return Array.from(this._neighbours[which].subarray(first, first + this._each[which]));
  }

  sheetOf(i) { return i < this.real ? [this.sheet, i] : [this.drawnSheet, i - this.real]; }

  /** The category of a point in what the map is coloured by; -1 where it has none. */
  category(i) {
    if (this.by === "label") return i < this.real ? this.labels[i] : -1;
    return this.by === "cluster" ? this.clusters[i] : -1;
  }

  categories() {
    if (this.by === "cluster") return Array.from({ length: this.clusterCount }, (_, i) => `cluster ${i}`);
    return this.by === "label" ? this.classes : [];
  }

  colourBy(what) {
    this.by = what;
    this.off.clear();
    if (what === "norm") this._rangeOfNorms();
    for (let i = 0; i < this.total; i++) {
      const colour = this._colour(i);
      this.colours.set(colour, 3 * i);
    }
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

  fit() {
    let [left, right, top, bottom] = [1, 0, 1, 0];
    for (let i = 0; i < (this.generatedShown ? this.total : this.real); i++) {
      left = Math.min(left, this.x[i]); right = Math.max(right, this.x[i]);
      top = Math.min(top, this.y[i]); bottom = Math.max(bottom, this.y[i]);
    }
    this.centreX = (left + right) / 2;
    this.centreY = (top + bottom) / 2;
    this.fitted = 0.92 * Math.min(this.width / (right - left || 1), this.height / (bottom - top || 1));
    this.scale = this.fitted;
  }

  get zoom() { return this.scale / this.fitted; }

  screenX(i) { return (this.x[i] - this.centreX) * this.scale + this.width / 2; }

  screenY(i) { return (this.y[i] - this.centreY) * this.scale + this.height / 2; }

  pan(dx, dy) {
    this.centreX -= dx / this.scale;
    this.centreY -= dy / this.scale;
  }

  /** Closer or further, with the place under (x, y) staying there. */
  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    const scale = Math.max(this.fitted * 0.5, Math.min(this.fitted * 200, this.scale * factor));
    const change = 1 / this.scale - 1 / scale;
    this.centreX += (x - this.width / 2) * change;
    this.centreY += (y - this.height / 2) * change;
    this.scale = scale;
  }

  /** Show a point in the middle, near enough to see its picture. */
  centreOn(i) {
    this.centreX = this.x[i];
    this.centreY = this.y[i];
    this.scale = Math.max(this.scale, this.sheet ? this.scaleOfThumbnails() * 1.6 : this.fitted * 4);
  }

  /** The whole is dots, however few: its shape is seen first. */
  scaleOfThumbnails() { return Math.max(11 / this.spacing, 1.4 * this.fitted); }

  /** Numbers of the points in view, into a list that is used again. */
  inView(margin = 0) {
    this._list = this._list || new Int32Array(this.total);
    const halfWidth = (this.width / 2 + margin) / this.scale, halfHeight = (this.height / 2 + margin) / this.scale;
    let found = 0;
    for (let i = 0; i < this.total; i++) {
      if (!this.hidden[i] && Math.abs(this.x[i] - this.centreX) <= halfWidth && Math.abs(this.y[i] - this.centreY) <= halfHeight) {
        this._list[found++] = i;
      }
    }
    return this._list.subarray(0, found);
  }

  nearest(x, y, reach) {
    let best = -1, least = reach * reach;
    for (const i of this.inView(reach)) {
      const distance = (this.screenX(i) - x) ** 2 + (this.screenY(i) - y) ** 2;
      if (distance <= least) { least = distance; best = i; }
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
