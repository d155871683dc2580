// N points evenly spaced on the unit circle, their squares, and a polynomial's values at them.
// For the chosen point z it builds P(z) = even(z^2) + z odd(z^2), and P(-z) = even(z^2) - z odd(z^2) where -z is a point.
// model: n, coefficients (real, lowest power first), degrees (angle of z^n), point (the chosen k), largest (n).

const CIRCLE = 1.4;                    // half the width of a panel with a circle of radius 1
const TURN = 15;                       // degrees of z^n for one press of an arrow key, and grid of a drag
   /* room for the ring of the focus */

const times = ([a, b], [c, d]) => [a * c - b * d, a * d + b * c];
const plus = ([a, b], [c, d]) => [a + c, b + d];
const turn = (angle) => [Math.cos(angle), Math.sin(angle)];
const complex = ([a, b]) => `${said(a)} ${b < -0.004 ? "−" : "+"} ${said(Math.abs(b))} i`;

export const points = (n, degrees) => all(n, (k) =>
  turn((degrees * Math.PI) / 180 / n - (2 * Math.PI * k) / n));
export const horner = (coefficients, z) => coefficients.reduceRight((sum, c) => plus(times(sum, z), [c, 0]), [0, 0]);

function arrow([x1, y1], [x2, y2], head) {
  const length = Math.hypot(x2 - x1, y2 - y1), h = Math.min(head, length / 2), body = `M${x1} ${y1}L${x2} ${y2}`;
  if (length < 1e-6) return body;
  const [a, b] = [((x2 - x1) / length) * h, ((y2 - y1) / length) * h];
  return `${body}M${x2 - a - b * 0.6} ${y2 - b + a * 0.6}L${x2} ${y2}L${x2 - a + b * 0.6} ${y2 - b - a * 0.6}`;
}

export function render({ model, el }) {
  const coefficients = model.get("coefficients"), largest = model.get("largest");
  const split = [0, 1].map((rest) => coefficients.filter((_, k) => k % 2 === rest));
  const round = all(181, (a) => turn((a * Math.PI) / 90));
  const curve = round.map((z) => horner(coefficients, z));                    // of P, once around the circle
  const most = Math.max(0.1, ...[...curve, ...round.map((z) => horner(split[0], z))].map((x) => Math.hypot(...x)));
  const state = inStep(model, ["n", "degrees", "point"], show);
  let n, degrees, k;                   // points, angle of z^n in degrees, the chosen point

  const host = begin(el, "Click a point to choose it, drag it to turn them all. By keyboard: Tab to a slider.");
  const panels = make(el, "div", { class: "roots-panels" });
  const [circle, squares, plane] = [0, 1, 2].map((which) => {
    const figure = make(panels, "div"), half = which < 2 ? CIRCLE : most * 1.12;
    const title = make(figure, "div", { class: "roots-title" });
    const svg = make(figure, "svg", { viewBox: `-100 -100 200 200`, role: "presentation" });
    make(svg, "path", { d: "M-98 0H98M0 -98V98", style: "stroke: var(--rule)" });
    if (which < 2) make(svg, "circle", { r: 100 / half, style: "fill: none; stroke: var(--muted)" });
    const at = ([x, y]) => [(x / half) * 100, (-y / half) * 100];
    if (which === 2) make(svg, "path", { d: `M${curve.map(at).join("L")}Z`, style: "fill: none; stroke: var(--muted); stroke-dasharray: 2 3" });
    return { title, svg, at, half, lines: make(svg, "g"), dots: make(svg, "g") };
  });
  make(circle.svg, "rect", { x: -100, y: -100, width: 200, height: 200, class: "turn", style: "fill: transparent" });
  legend(el, [["--c: var(--result); --r: 50%", "chosen point z, and −z"], ["--c: var(--even); --h: 3px", "even(z²)"],
    ["--c: var(--odd); --h: 3px", "± z odd(z²)"]]);
  const sliders = make(el, "div", { class: "roots-sliders" });
  const count = slide(sliders, {}, 2, largest), chosen = slide(sliders, {}, 0, 1);
  const angle = slide(sliders, {}, 0, 360 - TURN, TURN);
  const rows = facts(el, 4);
  const again = make(el, "button", { type: "button" }, "Start again");

  function update() {
    k = Math.min(k, n - 1);
    const z = points(n, degrees), square = z.map((x) => times(x, x)), values = z.map((x) => horner(coefficients, x));
    const partner = n % 2 ? null : (k + n / 2) % n;
    const even = horner(split[0], square[k]), odd = times(z[k], horner(split[1], square[k]));
    const distinct = n % 2 ? n : n / 2;
    tell(values, distinct, partner);
    speak(el, `${n} points, ${distinct} different squares; P at point ${k} is ${complex(values[k])}.`);
    draw(z, square, values, partner, even, odd);
    Object.assign(host.dataset, { n, degrees, point: k, twist: (degrees * Math.PI) / 180 / n, distinct,
      points: JSON.stringify(z), squares: JSON.stringify(square), values: JSON.stringify(values),
      even: JSON.stringify(even), odd: JSON.stringify(odd), partner: JSON.stringify(partner) });
    state.tell({ n, degrees, point: k });
  }
  function power() {
    return { 0: "1", 90: "i", 180: "−1", 270: "−i" }[Math.round(degrees)] ?? complex(turn((degrees * Math.PI) / 180));
  }
  function tell(values, distinct, partner) {
    circle.title.textContent = `${n} points z`;
    squares.title.textContent = `${distinct} squares z²`;
    plane.title.textContent = "values P(z)";
    count.caption.textContent = `number of points N = ${n}`;
    chosen.caption.textContent = `chosen point k = ${k}`;
    angle.caption.textContent = `turn: zᴺ = ${power()}`;
    move(chosen.slider, { max: n - 1 });
    for (const [control, value, words] of [[count, n, `${n} points`], [chosen, k, `point ${k}`],
      [angle, degrees, `z to the N is ${power()}`]]) {
      control.slider.value = value;
      control.slider.setAttribute("aria-valuetext", words);
    }
    const say = ([name, value], row) => {
      row.row.hidden = value === undefined;
      row.name.textContent = name;
      row.value.textContent = value ?? "";
    };
    [["zᴺ, the same at every point", power()],
      ["different squares", n % 2 ? `${n}: N is odd, no −z among the points` : `${distinct}, each of two points`],
      [`P at point ${k}: even + z odd`, complex(values[k])],
      partner === null ? [""] : [`P at point ${partner}: even − z odd`, complex(values[partner])],
    ].forEach((fact, row) => say(fact, rows[row]));
  }
  function draw(z, square, values, partner, even, odd) {
    for (const panel of [circle, squares, plane]) { panel.lines.replaceChildren(); panel.dots.replaceChildren(); }
    const dot = ({ dots, at }, x, r, lit, extra = "") => {
      const [cx, cy] = at(x);
      return make(dots, "circle", { cx, cy, r, "pointer-events": "none",
        style: `fill: var(--${lit ? "result" : "paper"}); stroke: var(--${lit ? "ink" : "muted"}); stroke-width: 1.6; ${extra}` });
    };
    const line = ({ lines, at }, from, to, colour, width) => make(lines, "path",
      { d: arrow(at(from), at(to), 9), style: `fill: none; stroke: var(--${colour}); stroke-width: ${width}; stroke-linecap: round` });
    const mark = turn((degrees * Math.PI) / 180), far = (x, share) => circle.at(x.map((c) => c * share));
    const [cx, cy] = circle.at(mark), [mx, my] = far(mark, 1.29);
    make(circle.lines, "circle", { cx, cy, r: 11, style: "fill: none; stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 3 2" });
    make(circle.dots, "text", { x: mx, y: my + 5, class: "roots-name" }, "zᴺ");
    const order = z.map((_, at) => at).sort((a, b) => (a === k || a === partner) - (b === k || b === partner));
    if (partner !== null) {
      make(circle.lines, "path", { d: `M${circle.at(z[k])}L${circle.at(z[partner])}`,
        style: "stroke: var(--result); stroke-width: 2.5" });
    }
    for (const j of order) {
      const lit = j === k || j === partner;
      dot(circle, z[j], lit ? 8 : 6, lit);
      if (lit || n % 2) dot(squares, square[j], lit ? 8 : 6, lit);
      else if (j < n / 2) dot(squares, square[j], 6, false);
      dot(plane, values[j], lit ? 6 : 4, lit);
    }
    const name = (x, text) => {            // beside the line between the two
      const [a, b] = far(times(x, turn(0.36)), 0.72);
      make(circle.dots, "text", { x: a, y: b + 5, class: "roots-name" }, text);
    };
    name(z[k], "z");
    if (partner !== null) name(z[partner], "−z");
    line(plane, [0, 0], even, "even", 3);
    line(plane, even, plus(even, odd), "odd", 3);
    if (partner !== null) line(plane, even, plus(even, times([-1, 0], odd)), "odd", 3);
  }

  function show(given) {
    [n, degrees, k] = [clamp(Math.round(given.n), 2, largest), ((given.degrees % 360) + 360) % 360, Math.max(0, given.point)];
    update();
  }
  // The angle of the pointer seen from the middle of the first circle, and the point nearest to it.
  function seen(event) {
    const box = circle.svg.getBoundingClientRect();
    return Math.atan2(box.top + box.height / 2 - event.clientY, event.clientX - box.left - box.width / 2);
  }
  function nearest(angle) {
    const share = ((degrees * Math.PI) / 180 / n - angle) * (n / (2 * Math.PI));
    return ((Math.round(share) % n) + n) % n;
  }
  hold(circle.svg, (event) => {
    k = nearest(seen(event));
    update();
    return { x: event.clientX, y: event.clientY, moved: false };
  }, (event, held) => {
    held.moved ||= Math.hypot(event.clientX - held.x, event.clientY - held.y) > 5;
    if (!held.moved) return;
    // The chosen point follows: its angle is degrees / n - 2 pi k / n, with degrees from 0 up to 360.
    const steps = Math.round(((seen(event) * n * 180) / Math.PI) / TURN) * TURN;
    degrees = ((steps % 360) + 360) % 360;
    k = ((Math.round((degrees - steps) / 360) % n) + n) % n;
    update();
  });
  count.slider.addEventListener("input", () => { n = Number(count.slider.value); update(); });
  chosen.slider.addEventListener("input", () => { k = Number(chosen.slider.value); update(); });
  angle.slider.addEventListener("input", () => { degrees = Number(angle.slider.value); update(); });
  again.addEventListener("click", state.restart);
  state.restart();
}

export default { render };
