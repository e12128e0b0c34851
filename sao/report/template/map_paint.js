// Painting a map: dots straight into the pixels, which twenty thousand of them need, and pictures where they overlap nothing.

class MapPainter {
  constructor(canvas, view) {
    this.canvas = canvas;
    this.view = view;
    this.context = canvas.getContext("2d", { alpha: false });
    this.current = -1; // the point under the pointer or the keyboard
    this.lasso = null;
    this.masks = new Map();
    this.theme();
  }

  /** Colours follow the page, light or dark. */
  theme() {
    const style = getComputedStyle(document.documentElement);
    this.paper = channels(style.getPropertyValue("--map"));
    this.ink = channels(style.getPropertyValue("--ink"));
    this.accent = style.getPropertyValue("--accent").trim();
  }

  resize(width, height) {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.view.resize(width, height, ratio);
    this.masks.clear(); // they know how long a row of pixels is
    this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** One frame: pictures where they overlap nothing, dots elsewhere. */
  paint() {
    const { view, context } = this;
    const side = view.side();
    const shown = view.inView(side);
    const pictures = [];
    const dots = [];
    for (const i of shown) (view.sheet && view.pictured(i, side) ? pictures : dots).push(i);
    this.pictures = pictures.length;
    this.pixels.fill(packedColour(this.paper));
    this._dots(dots);
    context.putImageData(this.image, 0, 0);
    context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    this._pictures(pictures, side);
    if (this.current >= 0) this._current(side);
    if (this.lasso) this._lasso();
  }

  /** Of a dot: small beside pictures. */
  radius() {
    const { view } = this;
    const base = view.real <= 600 ? 4.5 : view.real <= 2500 ? 3.6 : view.real <= 8000 ? 2.8 : 2.2;
    return (view.sheet ? 0.75 : 1.1) * base * Math.min(2, Math.max(0.8, view.zoom) ** 0.3);
  }

  _dots(shown) {
    const { view } = this;
    const radius = this.radius() * view.ratio;
    const round = this._mask(radius, false), diamond = this._mask(radius * 1.1, true);
    const stamp = (i, strength) => {
      const x = Math.round(view.screenX(i) * view.ratio), y = Math.round(view.screenY(i) * view.ratio);
      this._stamp(i < view.real ? round : diamond, x, y, i, strength, i < view.real ? this.paper : this.ink);
    };
    if (!view.marked) {
      for (const i of shown) stamp(i, 256);
      return;
    }
    for (const i of shown) if (!view.marked[i]) stamp(i, 50);
    for (const i of shown) if (view.marked[i]) stamp(i, 256);
  }

  /** Blend a small shape into the pixels: its inside in the point's colour, its edge in another. */
  _stamp(mask, x, y, i, strength, edge) {
    const { pixels, view } = this;
    const width = this.canvas.width, height = this.canvas.height, reach = mask.reach;
    const whole = x >= reach && y >= reach && x < width - reach && y < height - reach;
    const r = view.colours[3 * i], g = view.colours[3 * i + 1], b = view.colours[3 * i + 2];
    const solid = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    const { dx, dy, offset, fills, rims } = mask;
    const start = y * width + x;
    for (let k = 0; k < offset.length; k++) {
      if (!whole && (x + dx[k] < 0 || y + dy[k] < 0 || x + dx[k] >= width || y + dy[k] >= height)) continue;
      const place = start + offset[k];
      const fill = fills[k] * strength >> 8, rim = rims[k] * strength >> 8;
      if (fill === 255) { pixels[place] = solid; continue; }
      const rest = 255 - fill - rim, under = pixels[place];
      // 257 / 65536 is 1 / 255, near enough for a colour.
      const red = ((under & 255) * rest + r * fill + edge[0] * rim) * 257 >> 16;
      const green = ((under >> 8 & 255) * rest + g * fill + edge[1] * rim) * 257 >> 16;
      const blue = ((under >> 16 & 255) * rest + b * fill + edge[2] * rim) * 257 >> 16;
      pixels[place] = 255 << 24 | blue << 16 | green << 8 | red;
    }
  }

  /** How much of each pixel a disc, or a diamond, with a thin edge covers; 0 to 255. */
  _mask(radius, diamond) {
    const key = `${radius.toFixed(2)}${diamond}`;
    if (this.masks.has(key)) return this.masks.get(key);
    const reach = Math.ceil(radius + 1), size = 2 * reach + 1;
    const [dx, dy, offset, fills, rims] = [[], [], [], [], []];
    const edge = Math.min((diamond ? 1.1 : 1.4) * this.view.ratio, radius * 0.35);
    for (let at = 0; at < size * size; at++) {
      const column = at % size - reach, row = Math.floor(at / size) - reach;
      let inside = 0, rim = 0;
      for (let part = 0; part < 16; part++) {
        const x = column + (part % 4 - 1.5) / 4, y = row + (Math.floor(part / 4) - 1.5) / 4;
        const distance = diamond ? Math.abs(x) + Math.abs(y) : Math.hypot(x, y);
        if (distance <= radius - edge) inside++;
        else if (distance <= radius) rim++;
      }
      if (!inside && !rim) continue; // only what is covered is kept: most of the square is not
      const fill = Math.round(inside / 16 * 255);
      dx.push(column); dy.push(row); offset.push(row * this.canvas.width + column);
      fills.push(fill); rims.push(Math.min(255 - fill, Math.round(rim / 16 * (diamond ? 255 : 170))));
    }
    const mask = { reach, dx, dy, offset: Int32Array.from(offset), fills: Uint8Array.from(fills), rims: Uint8Array.from(rims) };
    if (this.masks.size > 200) this.masks.clear();
    this.masks.set(key, mask);
    return mask;
  }

  _pictures(shown, side) {
    const { view, context } = this;
    for (const i of shown) {
      const [name, place] = view.sheetOf(i);
      const sheet = sheets.get(name), tile = tileOf(name, place);
      const factor = side / Math.max(sheet.width, sheet.height);
      const width = sheet.width * factor, height = sheet.height * factor;
      const left = Math.round(view.screenX(i) - width / 2), top = Math.round(view.screenY(i) - height / 2);
      context.globalAlpha = view.marked && !view.marked[i] ? 0.16 : 1;
      context.fillStyle = `rgb(${view.colours[3 * i]},${view.colours[3 * i + 1]},${view.colours[3 * i + 2]})`;
      context.fillRect(left - 2, top - 2, width + 4, height + 4);
      if (tile) {
        context.imageSmoothingEnabled = !coarse(sheet);
        context.imageSmoothingQuality = "high";
        context.drawImage(...tile, left, top, width, height);
      }
      if (view.isHeldOut(i)) this._corner(left + width, top, side / 4);
      if (i >= view.real) {
        context.strokeStyle = css(this.ink);
        context.lineWidth = 1.5;
        context.setLineDash([3, 2]);
        context.strokeRect(left - 2, top - 2, width + 4, height + 4);
        context.setLineDash([]);
      }
    }
    context.globalAlpha = 1;
  }

  /** Marks what is held out. */
  _corner(x, y, size) {
    const { context } = this;
    context.fillStyle = this.accent;
    context.beginPath();
    context.moveTo(x - size, y);
    context.lineTo(x, y);
    context.lineTo(x, y + size);
    context.fill();
  }

  /** The point in question, ringed, with lines to its neighbours in feature space. */
  _current(side) {
    const { view, context } = this;
    const x = view.screenX(this.current), y = view.screenY(this.current);
    context.strokeStyle = this.accent;
    context.lineWidth = 1.25;
    context.globalAlpha = 0.7;
    context.beginPath();
    for (const j of view.neighbours(this.current)) {
      context.moveTo(x, y);
      context.lineTo(view.screenX(j), view.screenY(j));
    }
    context.stroke();
    context.globalAlpha = 1;
    const picture = view.sheet && view.pictured(this.current, side);
    if (picture) this._pictures([this.current], side); // above the lines
    context.strokeStyle = this.accent;
    context.lineWidth = 3;
    const half = picture ? side / 2 + 3 : this.radius() + 4;
    context.beginPath();
    if (picture) context.rect(x - half, y - half, 2 * half, 2 * half);
    else context.arc(x, y, half, 0, 2 * Math.PI);
    context.stroke();
  }

  _lasso() {
    const { context, lasso } = this;
    context.beginPath();
    for (let k = 0; k < lasso.length; k += 2) context.lineTo(lasso[k], lasso[k + 1]);
    context.closePath();
    context.globalAlpha = 0.12;
    context.fillStyle = this.accent;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = this.accent;
    context.lineWidth = 1.5;
    context.setLineDash([5, 4]);
    context.stroke();
    context.setLineDash([]);
  }
}

/** [r, g, b] of "#rrggbb". */
function channels(text) {
  const number = parseInt(text.trim().slice(1), 16);
  return [number >> 16, number >> 8 & 255, number & 255];
}

function packedColour([r, g, b]) {
  return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}
