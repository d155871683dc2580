// The transform of real sequences at N points, a power of two from 2 on: two neighbours become one complex number, so
// that it takes a complex transform of half the length.

class RealTransform {
  constructor(points) {
    const half = points / 2, bits = Math.log2(half);
    Object.assign(this, { points, half, re: new Float64Array(half), im: new Float64Array(half) });
    this.cos = Float64Array.from({ length: half + 1 }, (_, k) => Math.cos(2 * Math.PI * k / points));
    this.sin = Float64Array.from({ length: half + 1 }, (_, k) => Math.sin(2 * Math.PI * k / points));
    this.reversed = new Uint32Array(half);
    for (let k = 1; k < half; k++) this.reversed[k] = this.reversed[k >> 1] >> 1 | (k & 1) << (bits - 1);
  }

  // Write bins 0 ... N/2 of `count` numbers, which lie `stride` apart from x[first] on, and zeros after them.
  forward(x, first, stride, count, re, im) {
    const { half, reversed, cos, sin, re: zr, im: zi } = this;
    for (let k = 0; k < half; k++) {
      const at = reversed[k];
      zr[at] = 2 * k < count ? x[first + 2 * k * stride] : 0;
      zi[at] = 2 * k + 1 < count ? x[first + (2 * k + 1) * stride] : 0;
    }
    this.butterflies(zr, zi);
    for (let k = 0; k <= half; k++) {
      const a = k % half, b = (half - k) % half;
      const evenRe = (zr[a] + zr[b]) / 2, evenIm = (zi[a] - zi[b]) / 2;
      const oddRe = (zi[a] + zi[b]) / 2, oddIm = (zr[b] - zr[a]) / 2;
      re[k] = evenRe + oddRe * cos[k] + oddIm * sin[k];
      im[k] = evenIm + oddIm * cos[k] - oddRe * sin[k];
    }
  }

  // Write the N real numbers that have such bins.
  inverse(re, im, x) {
    const { half, reversed, cos, sin, re: zr, im: zi } = this;
    for (let k = 0; k < half; k++) {
      const evenRe = (re[k] + re[half - k]) / 2, evenIm = (im[k] - im[half - k]) / 2;
      const gapRe = (re[k] - re[half - k]) / 2, gapIm = (im[k] + im[half - k]) / 2;
      const oddRe = gapRe * cos[k] - gapIm * sin[k], oddIm = gapIm * cos[k] + gapRe * sin[k];
      zr[reversed[k]] = evenRe - oddIm;
      zi[reversed[k]] = evenIm + oddRe;
    }
    this.butterflies(zi, zr);                        // with the two exchanged the transform runs backwards
    for (let k = 0; k < half; k++) [x[2 * k], x[2 * k + 1]] = [zr[k] / half, zi[k] / half];
  }

  butterflies(re, im) {
    const { half, cos, sin } = this;
    for (let size = 1; size < half; size *= 2) {
      const step = half / size;                      // of the angle: the tables go around in 2 · half
      for (let start = 0; start < half; start += 2 * size) {
        for (let k = start, turn = 0; k < start + size; k++, turn += step) {
          const a = re[k + size] * cos[turn] + im[k + size] * sin[turn];
          const b = im[k + size] * cos[turn] - re[k + size] * sin[turn];
          re[k + size] = re[k] - a;
          im[k + size] = im[k] - b;
          re[k] += a;
          im[k] += b;
        }
      }
    }
  }
}

const transforms = new Map();

// A transform at no fewer points than asked for.
function transformOf(least) {
  let points = 2;
  while (points < least) points *= 2;
  if (!transforms.has(points)) transforms.set(points, new RealTransform(points));
  return transforms.get(points);
}
