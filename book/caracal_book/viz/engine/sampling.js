// Which token comes next: probabilities of logits, and a draw among them.

// The `count` likeliest ids, likeliest first, with their probabilities among all at this temperature: at 0 the first has 1.
function likeliest(logits, count, temperature = 1) {
  const p = softmax(logits, temperature || 1), best = [];
  for (let id = 0; id < logits.length; id++) {
    if (best.length === count && logits[id] <= logits[best[count - 1]]) continue;
    let k = best.length;
    while (k > 0 && logits[best[k - 1]] < logits[id]) k--;
    best.splice(k, 0, id);
    if (best.length > count) best.pop();
  }
  return best.map((id, k) => ({ id, p: temperature ? p[id] : Number(k === 0) }));
}

// Draw an id as `caracal_min.generation.draw` does: temperature 0 takes the likeliest; topK keeps that many ids, topP of
// them the fewest whose probabilities sum to at least topP.  `random` returns a number from 0 to 1, without 1.
function draw(logits, { temperature = 1, topK = null, topP = null }, random) {
  if (!logits.every(Number.isFinite)) throw new Error("a logit is not finite: load other weights");
  if (temperature === 0) return logits.reduce((best, logit, id) => (logit > logits[best] ? id : best), 0);
  const all = Array.from(logits.keys());
  if (topK !== null || topP !== null) all.sort((a, b) => logits[b] - logits[a] || a - b);
  const ids = all.slice(0, topK ?? all.length);
  const p = softmax(ids.map((id) => logits[id]), temperature);
  let kept = p.length, total = 1;
  if (topP !== null) for (kept = total = 0; kept < p.length && (kept === 0 || total < topP); kept++) total += p[kept];
  let left = random() * total;
  for (let k = 0; k < kept; k++) if ((left -= p[k]) < 0) return ids[k];
  return ids[kept - 1];
}

function softmax(logits, temperature) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const p = Float64Array.from(logits, (logit) => Math.exp((logit - largest) / temperature));
  const total = p.reduce((sum, value) => sum + value, 0);
  return p.map((value) => value / total);
}

// Numbers from 0 to 1 that a whole number decides.  Source: "mulberry32" of Tommy Ettinger, public domain.
function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6D2B79F5) >>> 0;
    let mixed = Math.imul(state ^ state >>> 15, state | 1);
    mixed ^= mixed + Math.imul(mixed ^ mixed >>> 7, mixed | 61);
    return ((mixed ^ mixed >>> 14) >>> 0) / 2 ** 32;
  };
}
