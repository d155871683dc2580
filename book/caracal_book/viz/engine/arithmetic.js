// Arithmetic of the engine.  A matrix of a text is a Float32Array, a row for each token.  Sums are taken in double
// precision.  What may take long is a generator that pauses between pieces of some milliseconds.

const AT_ONCE = 16;          // tokens of a product between two pauses
const EPSILON = 1e-5;        // of LayerNorm, as PyTorch has it

// Rows of one width that are appended one after the other, or cut off at the end by `length = n`.
class Rows {
  constructor(width) { Object.assign(this, { width, length: 0, values: new Float32Array(64 * width) }); }
  append(rows) {
    const end = this.length * this.width, room = end + rows.length;
    if (room > this.values.length) {
      const larger = new Float32Array(Math.max(room, 2 * this.values.length));
      larger.set(this.values.subarray(0, end));
      this.values = larger;
    }
    this.values.set(rows, end);
    this.length += rows.length / this.width;
  }
  from(row) { return this.values.subarray(row * this.width, this.length * this.width); }
}

// Multiply every row of x by a matrix, given as `rows` rows of `columns` values: y[t, o] = Σ_i weight[o, i] x[t, i].
function* product(x, weight, columns, bias = null) {
  const tokens = x.length / columns, rows = weight.length / columns, y = new Float32Array(tokens * rows);
  for (let t = 0; t < tokens; t += AT_ONCE) {
    for (let k = t; k < Math.min(tokens, t + AT_ONCE); k++) multiply(x, k * columns, weight, columns, y, k * rows, rows);
    if (tokens > AT_ONCE) yield;
  }
  if (bias) for (let k = 0; k < y.length; k += rows) for (let o = 0; o < rows; o++) y[k + o] += bias[o];
  return y;
}

// One row of it.  Four rows of the matrix at a time: each number of x is then read once for four products.
function multiply(x, from, weight, columns, y, to, rows) {
  let o = 0;
  for (; o + 3 < rows; o += 4) {
    const a = o * columns, b = a + columns, c = b + columns, d = c + columns;
    let p = 0, q = 0, r = 0, s = 0;
    for (let i = 0; i < columns; i++) {
      const z = x[from + i];
      p += weight[a + i] * z;
      q += weight[b + i] * z;
      r += weight[c + i] * z;
      s += weight[d + i] * z;
    }
    y[to + o] = p;
    y[to + o + 1] = q;
    y[to + o + 2] = r;
    y[to + o + 3] = s;
  }
  for (; o < rows; o++) {
    let p = 0;
    for (let i = 0; i < columns; i++) p += weight[o * columns + i] * x[from + i];
    y[to + o] = p;
  }
}

// Multiply the channels of each head by a matrix of its own, weight[head channel, channel in the head].
function mixHeads(x, weight, bias, width, heads) {
  const size = width / heads, y = new Float32Array(x.length);
  for (let t = 0; t < x.length; t += width) {
    for (let head = 0; head < width; head += size) {
      multiply(x, t + head, weight.subarray(head * size, (head + size) * size), size, y, t + head, size);
    }
    for (let c = 0; c < width; c++) y[t + c] += bias[c];
  }
  return y;
}

function layerNorm(x, weight, bias) {
  const width = weight.length, y = new Float32Array(x.length);
  for (let t = 0; t < x.length; t += width) {
    let mean = 0, square = 0;
    for (let c = 0; c < width; c++) mean += x[t + c] / width;
    for (let c = 0; c < width; c++) square += (x[t + c] - mean) ** 2 / width;
    const scale = 1 / Math.sqrt(square + EPSILON);
    for (let c = 0; c < width; c++) y[t + c] = (x[t + c] - mean) * scale * weight[c] + bias[c];
  }
  return y;
}

// Convolve each channel with its own taps, the last of which meets the token itself; `before` holds the rows before x.
function shortConvolution(x, before, taps, width) {
  const reach = taps.length / width - 1, y = new Float32Array(x.length), rows = new Float32Array(reach * width + x.length);
  rows.set(before, reach * width - before.length);
  rows.set(x, reach * width);
  for (let t = 0; t < x.length; t += width) {
    for (let c = 0; c < width; c++) {
      let sum = 0;
      for (let k = 0; k <= reach; k++) sum += taps[c * (reach + 1) + k] * rows[t + k * width + c];
      y[t + c] = sum;
    }
  }
  return y;
}

// The cyclic convolution of each channel, of `points` points for each token.
function cyclicConvolution(v, g, width, points) {
  const tokens = v.length / width, N = Math.round(points * tokens), r = new Float32Array(v.length);
  for (let j = 0; j < tokens; j++) {
    for (let i = 0; i < tokens; i++) {
      const t = (j + i) % N;
      if (t < tokens) for (let c = 0; c < width; c++) r[t * width + c] += v[j * width + c] * g[i * width + c];
    }
  }
  return r;
}

const silu = (x) => x.map((value) => value / (1 + Math.exp(-value)));

function add(x, y) {
  const sum = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) sum[i] = x[i] + y[i];
  return sum;
}

function times(x, y) {
  const result = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) result[i] = x[i] * y[i];
  return result;
}

// Softmax attention of the tokens from `start` on to themselves and the `window - 1` before; q has their rows, keys and
// values those of the whole text.  Returns y, and the weights by token, head and lag; 0 where the text has no such lag.
// With `ahead` they attend to as many tokens after themselves, too, whose weights are not returned.
function attend(q, keys, values, start, heads, window, ahead = false) {
  const { width, length } = keys, size = width / heads, y = new Float32Array(q.length), scores = new Float64Array(2 * window);
  const weights = new Float32Array((length - start) * heads * window);
  for (let t = start; t < length; t++) {
    const row = (t - start) * width, first = Math.max(0, t - window + 1);
    const last = ahead ? Math.min(length - 1, t + window - 1) : t;
    for (let head = 0; head < width; head += size) {
      const lags = ((t - start) * heads + head / size) * window + t;
      let largest = -Infinity, total = 0;
      for (let j = first; j <= last; j++) {
        let score = 0;
        for (let c = head; c < head + size; c++) score += q[row + c] * keys.values[j * width + c];
        scores[j - first] = score / Math.sqrt(size);
        largest = Math.max(largest, scores[j - first]);
      }
      for (let j = 0; j <= last - first; j++) total += scores[j] = Math.exp(scores[j] - largest);
      for (let j = first; j <= last; j++) {
        const share = scores[j - first] / total;
        if (j <= t) weights[lags - j] = share;
        for (let c = head; c < head + size; c++) y[row + c] += share * values.values[j * width + c];
      }
    }
  }
  return { y, weights };
}

// How large each row is: the root of the mean of its squares.
function rootMeanSquares(x, width) {
  return Array.from({ length: x.length / width }, (_, t) => {
    let sum = 0;
    for (let c = t * width; c < (t + 1) * width; c++) sum += x[c] * x[c];
    return Math.sqrt(sum / width);
  });
}
