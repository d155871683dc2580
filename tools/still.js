// The first frame of a figure as SVG: what the browser has drawn of `live`, at its places and in its colours.
// Run in a page with one figure by tools/draw_stills.py.  Controls are left out, but what they say stays.

(live) => {
  const NS = "http://www.w3.org/2000/svg";
  const palette = ["content", "gate", "result", "wrapped", "other-0", "other-1", "ink", "muted", "rule", "shade", "paper"]
    .map((name) => getComputedStyle(live).getPropertyValue(`--${name}`).trim().toUpperCase());
  const [INK, PAPER] = [palette[6], palette[10]];
  const LOOK = { fill: INK, stroke: "none", "stroke-width": "1", "stroke-dasharray": "none", "stroke-linecap": "butt",
    "stroke-linejoin": "miter", "paint-order": "normal", "fill-rule": "nonzero", "vector-effect": "none" };
  const WORDS = { "font-size": "14px", "font-weight": "400", "font-style": "normal" };
  const PLACES = { rect: ["x", "y", "width", "height", "rx"], circle: ["cx", "cy", "r"], line: ["x1", "y1", "x2", "y2"],
    path: ["d"], text: ["x", "y", "text-anchor"], tspan: ["x", "y", "dx", "dy"] };
  const channels = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const escaped = (text) => text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);
  const short = (x) => `${Math.round(x * 10) / 10 || 0}`;
  const shorter = (text) => text.replace(/-?\d*\.\d+(e-\d+)?/g, (x) => short(Number(x)));
  const written = (name, attributes, inside = "") => `<${name}${Object.entries(attributes)
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([key, value]) => ` ${key}="${escaped(typeof value === "number" ? short(value) : value)}"`).join("")}${inside ? `>${inside}</${name}>` : "/>"}`;
  const box = live.getBoundingClientRect(), look = getComputedStyle(live);
  const [left, top] = [box.left + parseFloat(look.borderLeftWidth), box.top + parseFloat(look.borderTopWidth)];
  let low = 0;

  // A colour as the browser computes it: one of the palette, and how much of it is laid on the paper.  Black is the
  // fill of a line that no style names.
  function paint(value) {
    const [r, g, b, a = 1] = value.match(/[\d.]+(?:e-\d+)?/g).map(Number), unit = value.startsWith("color") ? 255 : 1;
    const seen = [r, g, b].map((c) => c * unit);
    if (!a || !(r + g + b)) return { colour: "none", opacity: 1 };
    const near = palette.map((hex) => {
      const lack = channels(hex).map((c) => 255 - c), norm = lack.reduce((sum, c) => sum + c * c, 0);
      const share = norm ? Math.min(1, seen.reduce((sum, c, k) => sum + (255 - c) * lack[k], 0) / norm) : 1;
      return { colour: hex, share, miss: Math.max(...seen.map((c, k) => Math.abs(255 - share * lack[k] - c))) - share / 100 };
    }).reduce((best, next) => (next.miss < best.miss ? next : best));
    if (near.miss > 3) throw Error(`a colour that is none of the palette: ${value}`);
    return { colour: near.colour, opacity: Math.round(a * near.share * 100) / 100 };
  }

  function lookOf(style, keys, without = "") {
    const found = {};
    for (const key of Object.keys(keys)) {
      if (key === without) continue;
      const value = style.getPropertyValue(key);
      if (key === "fill" || key === "stroke") {
        if (value.startsWith("url")) throw Error(`${key} ${value}`);
        const { colour, opacity } = value === "none" ? { colour: "none", opacity: 1 } : paint(value);
        const whole = Math.round(opacity * parseFloat(style.getPropertyValue(`${key}-opacity`)) * 100) / 100;
        if (colour !== keys[key] || whole < 1) found[key] = whole ? colour : "none";
        if (colour !== "none" && whole > 0 && whole < 1) found[`${key}-opacity`] = `${whole}`;
      } else if (value !== keys[key]) found[key] = shorter(value).replace(/px/g, "");
    }
    if (found.stroke === undefined) for (const key of Object.keys(found)) if (key.startsWith("stroke")) delete found[key];
    if (found["vector-effect"]) delete found["vector-effect"];
    if (style.opacity !== "1") found.opacity = shorter(style.opacity);
    return found;
  }

  const mono = (style) => (/monospace/.test(style.fontFamily) ? { "font-family": "monospace" } : {});
  const hidden = (node, style) => style.display === "none" || style.visibility === "hidden" || style.opacity === "0"
    || style.clipPath !== "none" || node.matches(".caracal-said, .caracal-ring");

  // What stands in a drawing; a group keeps its transform, so that its marks keep their numbers.
  function drawn(node, around) {
    const style = getComputedStyle(node), name = node.tagName;
    if (name !== "g" && hidden(node, style) || style.display === "none" || style.opacity === "0" || !(name in PLACES || name === "g")) return "";
    const m = around.inverse().multiply(node.getScreenCTM());
    const turned = Math.abs(m.a - 1) + Math.abs(m.b) + Math.abs(m.c) + Math.abs(m.d - 1) > 1e-4;
    const moved = turned || Math.abs(m.e) + Math.abs(m.f) > 0.05;
    const digits = (x) => `${Math.round(x * 1e4) / 1e4 || 0}`;
    const transform = !moved ? undefined : !turned ? `translate(${short(m.e)} ${short(m.f)})`
      : `matrix(${[m.a, m.b, m.c, m.d].map(digits).join(" ")} ${short(m.e)} ${short(m.f)})`;
    if (name === "g") {
      const inside = [...node.children].map((child) => drawn(child, node.getScreenCTM())).join("");
      const opacity = style.opacity === "1" ? undefined : shorter(style.opacity);
      return !inside ? "" : transform || opacity ? written("g", { transform, opacity }, inside) : inside;
    }
    const words = name === "text" || name === "tspan";
    const found = lookOf(style, words ? { ...LOOK, ...WORDS } : LOOK, name === "line" ? "fill" : "");
    if (!words && (found.fill === "none" || name === "line") && !found.stroke) return "";
    const attributes = { transform };
    for (const key of PLACES[name]) {
      const value = key === "text-anchor" ? style.textAnchor : node.getAttribute(key);
      if (value !== null && !(key === "text-anchor" && value === "start")) attributes[key] = shorter(value);
    }
    if (!words) {
      const [wide, tall] = [node.getAttribute("width"), node.getAttribute("height")].map(Number);
      if (name === "rect" && !(wide > 0.04 && tall > 0.04)) return "";
      // A stroke that does not grow with the drawing.
      if (style.vectorEffect === "non-scaling-stroke") found["stroke-width"] = digits(parseFloat(style.strokeWidth) / node.getScreenCTM().a);
      reach(node.getBoundingClientRect().bottom);
      return written(name, { ...attributes, ...found });
    }
    if (!node.textContent.trim()) return "";
    reach(node.getBoundingClientRect().bottom);
    const inside = [...node.childNodes].map((child) => (child.nodeType === 3 ? escaped(child.data) : drawn(child, node.getScreenCTM()))).join("");
    return written(name, { ...attributes, ...found, ...mono(style) }, inside);
  }

  const reach = (y) => { low = Math.max(low, y - top); };
  const rectangle = (x, y, width, height, found) => {
    reach(y + height);
    return written("rect", { x: x - left, y: y - top, width, height, ...found });
  };

  // The ground and the border of an element, or of what stands before or after it.
  function ground(style, { left: x, top: y, width, height }) {
    const back = paint(style.backgroundColor), sides = ["Top", "Right", "Bottom", "Left"];
    const borders = sides.map((side) => ({ width: style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`]), colour: style[`border${side}Color`], dash: style[`border${side}Style`] === "dashed" }));
    const lines = borders.map((border) => border.width && paint(border.colour).colour !== "none"), all = lines.every(Boolean);
    const radius = Math.min(parseFloat(style.borderTopLeftRadius) * (style.borderTopLeftRadius.endsWith("%") ? width / 100 : 1), width / 2, height / 2);
    const found = { rx: radius || undefined, fill: back.colour, "fill-opacity": back.opacity < 1 ? `${back.opacity}` : undefined };
    let marks = "";
    if (!(width > 0.04 && height > 0.04)) return "";
    if (all) {
      const w = borders[0].width, line = paint(borders[0].colour);
      marks += rectangle(x + w / 2, y + w / 2, Math.max(0, width - w), Math.max(0, height - w), { ...found, stroke: line.colour, "stroke-opacity": line.opacity < 1 ? `${line.opacity}` : undefined, "stroke-width": w === 1 ? undefined : w,
        "stroke-dasharray": borders[0].dash ? "3 3" : undefined });
    } else {
      if (back.colour !== "none") marks += rectangle(x, y, width, height, found);
      borders.forEach(({ width: w, colour }, k) => {
        if (!lines[k]) return;
        const [a, b, c, d] = [[x, y, width, w], [x + width - w, y, w, height], [x, y + height - w, width, w], [x, y, w, height]][k];
        marks += rectangle(a, b, c, d, { fill: paint(colour).colour });
      });
    }
    if (/^repeating-linear-gradient/.test(style.backgroundImage)) marks += rectangle(x, y, width, height, { fill: "url(#stripes)" });
    const outline = parseFloat(style.outlineWidth);
    if (style.outlineStyle !== "none" && outline) marks += rectangle(x, y, width, height, { fill: "none", stroke: paint(style.outlineColor).colour, "stroke-width": outline });
    return marks;
  }

  // What a style puts before or after an element: a sign of a legend, or a bar that is placed by its edges.
  function beside(node, which) {
    const style = getComputedStyle(node, which);
    if (style.content === "none" || style.content === "normal" || style.display === "none") return "";
    const around = node.getBoundingClientRect(), size = { width: parseFloat(style.width), height: parseFloat(style.height) };
    if (style.boxSizing !== "border-box") for (const [key, sides] of [["width", ["Left", "Right"]], ["height", ["Top", "Bottom"]]]) for (const side of sides) size[key] += parseFloat(style[`border${side}Width`]);
    const place = style.position === "absolute" ? { left: around.left + parseFloat(style.left), top: around.top + parseFloat(style.top) }
      : { left: around.left, top: around.top + (around.height - size.height) / 2 };
    return ground(style, { ...place, ...size });
  }

  // Words in lines, as they are broken here.
  const board = document.createElement("canvas").getContext("2d");
  function lines(text, style, cut) {
    const spans = [], range = document.createRange(), keep = style.whiteSpace.startsWith("pre");
    for (const { 0: word, index } of text.data.matchAll(keep ? /[^\n]/gu : /\S+/g)) {
      range.setStart(text, index);
      range.setEnd(text, index + word.length);
      const seen = range.getClientRects()[0];
      if (!seen || cut && (seen.bottom > cut.bottom + 1 || seen.right > cut.right + 1 || seen.top < cut.top - 1)) continue;
      const last = spans.at(-1);
      if (last && Math.abs(last.top - seen.top) < 2) Object.assign(last, { words: `${last.words}${keep ? "" : " "}${word}`, right: seen.right });
      else spans.push({ words: word, left: seen.left, right: seen.right, top: seen.top, bottom: seen.bottom });
    }
    board.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = board.measureText("x");
    const around = text.parentElement.getBoundingClientRect(), { colour } = paint(style.color);
    const size = parseFloat(style.fontSize), turned = { fill: colour === INK ? undefined : colour };
    return spans.map(({ words, left: from, right, top: high, bottom }) => {
      const middle = /center/.test(style.textAlign) || text.parentElement.tagName === "BUTTON", end = /right|end/.test(style.textAlign) || around.right - right < 1 && from - around.left > 4;
      const base = high + (bottom - high) * (up / (up + down));
      reach(bottom);
      return written("text", { x: (middle ? (from + right) / 2 : end ? right : from) - left, y: base - top, "text-anchor": middle ? "middle" : end ? "end" : undefined, ...turned,
        "font-size": size === 14 ? undefined : size, "font-weight": style.fontWeight === "400" ? undefined : style.fontWeight,
        "font-style": style.fontStyle === "normal" ? undefined : style.fontStyle, ...mono(style), "xml:space": /^ |  /.test(words) ? "preserve" : undefined }, escaped(words));
    }).join("");
  }

  function seen(node, cut) {
    const style = getComputedStyle(node), name = node.tagName;
    if (hidden(node, style) || name === "INPUT" || name === "STYLE") return "";
    const around = node.getBoundingClientRect();
    if (cut && (around.top >= cut.bottom - 1 || around.bottom <= cut.top + 1)) return "";
    if (name === "svg") {
      const at = node.getScreenCTM(), inside = [...node.children].map((child) => drawn(child, at)).join("");
      const m = `${Math.round(at.a * 1e4) / 1e4}`, size = lookOf(style, WORDS)["font-size"];
      const back = ground(style, around);
      reach(around.bottom);
      return back + written("g", { transform: `translate(${short(at.e - left)} ${short(at.f - top)})${m === "1" ? "" : ` scale(${m})`}`, "font-size": size }, inside);
    }
    if (name === "SELECT") {
      const option = node.selectedOptions[0]?.textContent ?? "";
      return written("text", { x: around.left - left + 8, y: around.top - top + around.height / 2 + 5 }, escaped(option)) + ground(style, around).replace(`fill="${PAPER}"`, 'fill="none"');
    }
    const inner = /auto|scroll|hidden|clip/.test(style.overflowY) ? around : cut;
    return ground(style, around) + beside(node, "::before") + [...node.childNodes].map((child) => (child.nodeType === 3 ? lines(child, style, inner)
      : child.nodeType === 1 ? seen(child, inner) : "")).join("") + beside(node, "::after");
  }

  const marks = [...live.children].map((child) => seen(child)).join("\n");
  const [width, height] = [Math.round(box.width - 2), Math.ceil(low + 10)];
  const stripes = marks.includes("#stripes") ? `<pattern id="stripes" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path d="M0 5H6" stroke="${PAPER}" stroke-width="2"/></pattern>` : "";
  return `<svg xmlns="${NS}" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="system-ui, sans-serif" font-size="14" fill="${INK}"><rect width="${width}" height="${height}" fill="${PAPER}"/>${stripes}\n${marks}</svg>\n`;
}
