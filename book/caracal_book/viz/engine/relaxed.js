// The causal convolution r_t = Σ v_j g_{t−j} of contents and gates: of many tokens by a transform, of a text that grows
// a token at a time by the schedule of `caracal_min.relaxed`, which adds pairs of tokens to later results in blocks.

const BASE = 32;             // tokens whose pairs are summed directly; shorter blocks are not worth a transform
const CHANNELS = 32;         // that are transformed between two pauses

class CausalConvolution {
  constructor(width) {
    Object.assign(this, { width, v: new Rows(width), g: new Rows(width), pending: new Float64Array(0) });
  }
  get length() { return this.v.length; }

  // Append contents and gates of some tokens, a row each, and return their results.
  *append(v, g) {
    const start = this.length;
    this.v.append(v);
    this.g.append(g);
    if (v.length === this.width) return yield* this.step(start);
    const r = yield* this.parallel(start);
    yield* this.schedule();
    return r;
  }

  // Forget all tokens but the first `length`.
  *truncate(length) {
    this.v.length = this.g.length = length;
    yield* this.schedule();
  }

  // Results from `start` on, all at once: at N ≥ 2 L − 1 points nothing wraps around.
  *parallel(start) {
    const { width, length } = this, transform = transformOf(2 * length - 1), r = new Float32Array((length - start) * width);
    const whole = [{ v: 0, vCount: length, g: 0, gCount: length }];
    yield* this.products(transform, whole, (c, x) => {
      for (let t = start; t < length; t++) r[(t - start) * width + c] = x[t];
    });
    return r;
  }

  // The result of token t, the last one: what blocks have added, and the pairs with an index in its own block.
  *step(t) {
    const { width, v: { values: v }, g: { values: g } } = this, first = t - t % BASE, r = new Float64Array(width);
    if (first > 0) r.set(this.pending.subarray(t * width, (t + 1) * width));
    for (let k = first; k <= t; k++) {
      const late = k * width, early = (t - k) * width;
      for (let c = 0; c < width; c++) r[c] += v[late + c] * g[early + c];
      if (first > 0) for (let c = 0; c < width; c++) r[c] += g[late + c] * v[early + c];
    }
    if ((t + 1) % BASE === 0) yield* this.block(t + 1);
    return new Float32Array(r);
  }

  // What is pending after the tokens that are there: the blocks of a Fenwick tree.
  *schedule() {
    this.pending.fill(0);
    for (let n = this.length - this.length % BASE; n > 0; n &= n - 1) yield* this.block(n);
  }

  // Add what the last m of n tokens, m being the lowest bit of n, mean for results n ... n + m − 1.
  *block(n) {
    const m = n & -n, { width } = this;
    if (this.pending.length < (n + m) * width) {
      const larger = new Float64Array(2 * n * width);
      larger.set(this.pending);
      this.pending = larger;
    }
    const pairs = n === m ? [{ v: 0, vCount: m, g: 0, gCount: m }]
      : [{ v: n - m, vCount: m, g: 0, gCount: 2 * m }, { v: 0, vCount: 2 * m, g: n - m, gCount: m }];
    yield* this.products(transformOf(2 * m), pairs, (c, x) => {
      for (let k = 0; k < m; k++) this.pending[(n + k) * width + c] += x[m + k];
    });
  }

  // Hand `take` for each channel the sum of products of v[v : v + vCount] and g[g : g + gCount], modulo z^N − 1.
  *products(transform, pairs, take) {
    const { width, v: { values: v }, g: { values: g } } = this, bins = transform.half + 1;
    const [vRe, vIm, gRe, gIm, re, im] = Array.from({ length: 6 }, () => new Float64Array(bins));
    const x = new Float64Array(transform.points);
    for (let c = 0; c < width; c++) {
      re.fill(0);
      im.fill(0);
      for (const pair of pairs) {
        transform.forward(v, pair.v * width + c, width, pair.vCount, vRe, vIm);
        transform.forward(g, pair.g * width + c, width, pair.gCount, gRe, gIm);
        for (let k = 0; k < bins; k++) {
          re[k] += vRe[k] * gRe[k] - vIm[k] * gIm[k];
          im[k] += vRe[k] * gIm[k] + vIm[k] * gRe[k];
        }
      }
      transform.inverse(re, im, x);
      take(c, x);
      if (c % CHANNELS === CHANNELS - 1) yield;
    }
  }
}
