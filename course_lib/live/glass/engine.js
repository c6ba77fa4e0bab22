// A small decoder in the browser: the model of the course, every intermediate kept, and nothing computed twice.
//
// Shapes are written beside the arrays. All of them are rows of Float32Array: a token's numbers lie side by side.

/**
 * Read a safetensors file of float16 or of int8, with a float32 scale for each row. Returns {config, tokenizer, weights}:
 * name -> Float32Array or Int8Array; what `pack` writes.
 */
export function readModel(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headerBytes = Number(view.getBigUint64(0, true)), data = 8 + headerBytes;
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, data)));
  const weights = {};
  const {config, tokenizer} = header.__metadata__;
  delete header.__metadata__;
  for (const [name, {dtype, data_offsets: [begin, end]}] of Object.entries(header)) {
    if (dtype === "I8") {
      weights[name] = new Int8Array(bytes.buffer, bytes.byteOffset + data + begin, end - begin);  // where it lies
      continue;
    }
    const size = dtype === "F32" ? 4 : 2, numbers = (weights[name] = new Float32Array((end - begin) / size));
    for (let i = 0; i < numbers.length; i++) {
      const at = data + begin + size * i;
      numbers[i] = size === 4 ? view.getFloat32(at, true) : half(view.getUint16(at, true));
    }
  }
  return {config: JSON.parse(config), tokenizer: JSON.parse(tokenizer), weights};
}

/** The number that 16 bits stand for: a sign, five bits of exponent, ten of fraction. */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return exponent === 31 ? (fraction ? NaN : sign * Infinity) : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/**
 * y = W x + b for the rows from `first` to `last`. x (T, n_in), W (n_out, n_in), y (T, n_out), written in place.
 * scale: of each row of W, where it is int8; it multiplies the sum.
 *
 * Tiles of three rows by four outputs: twelve sums for seven numbers fetched, and as many as a processor's registers hold.
 */
function linear(x, {weight: W, scale, bias}, y, n_in, n_out, first, last) {
  const whole = n_out - (n_out % 4);
  let t = first;
  for (; t + 3 <= last; t += 3) for (let o = 0; o < whole; o += 4) {
    let a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0, c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    for (let i = 0, w = o * n_in, r = t * n_in; i < n_in; i++, w++, r++) {
      const u = x[r], v = x[r + n_in], z = x[r + 2 * n_in];
      const w0 = W[w], w1 = W[w + n_in], w2 = W[w + 2 * n_in], w3 = W[w + 3 * n_in];
      a0 += u * w0; a1 += u * w1; a2 += u * w2; a3 += u * w3;
      b0 += v * w0; b1 += v * w1; b2 += v * w2; b3 += v * w3;
      c0 += z * w0; c1 += z * w1; c2 += z * w2; c3 += z * w3;
    }
    const p = t * n_out + o, q = p + n_out, s = q + n_out;
    y[p] = a0; y[p + 1] = a1; y[p + 2] = a2; y[p + 3] = a3;
    y[q] = b0; y[q + 1] = b1; y[q + 2] = b2; y[q + 3] = b3;
    y[s] = c0; y[s + 1] = c1; y[s + 2] = c2; y[s + 3] = c3;
  }
  for (let row = t; row < last; row++) for (let o = 0; o < whole; o += 4) {  // the last row or two, often a new token
    let a0 = 0, a1 = 0, a2 = 0, a3 = 0;
    for (let i = 0, w = o * n_in, r = row * n_in; i < n_in; i++, w++, r++) {
      const v = x[r];
      a0 += v * W[w]; a1 += v * W[w + n_in]; a2 += v * W[w + 2 * n_in]; a3 += v * W[w + 3 * n_in];
    }
    const p = row * n_out + o;
    y[p] = a0; y[p + 1] = a1; y[p + 2] = a2; y[p + 3] = a3;
  }
  for (let row = first; row < last; row++) {
    for (let o = whole; o < n_out; o++) {
      let a = 0;
      for (let i = 0; i < n_in; i++) a += x[row * n_in + i] * W[o * n_in + i];
      y[row * n_out + o] = a;
    }
    if (scale) for (let o = 0; o < n_out; o++) y[row * n_out + o] *= scale[o];
    if (bias) for (let o = 0; o < n_out; o++) y[row * n_out + o] += bias[o];
  }
}

/** Layer norm, or RMS norm where there is no bias to centre for: each row of x (T, d) to spread 1, times weight. */
function normalize(x, {weight, bias, centred, eps}, y, d, first, last) {
  for (let t = first; t < last; t++) {
    let mean = 0, square = 0;
    if (centred) {
      for (let i = 0; i < d; i++) mean += x[t * d + i];
      mean /= d;
    }
    for (let i = 0; i < d; i++) square += (x[t * d + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(square / d + eps);
    for (let i = 0; i < d; i++) y[t * d + i] = (x[t * d + i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
  }
}

/** The error function, to 2e-7 (Abramowitz and Stegun 1964, 7.1.26). */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - tail * Math.exp(-x * x));
}

const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  swiglu: (x) => x / (1 + Math.exp(-x)),  // of the gate, which then multiplies what it lets through
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

/** Softmax of n numbers from `at`, in place. */
function softmax(x, at, n) {
  let largest = -Infinity, sum = 0;
  for (let i = at; i < at + n; i++) largest = Math.max(largest, x[i]);
  for (let i = at; i < at + n; i++) sum += x[i] = Math.exp(x[i] - largest);
  for (let i = at; i < at + n; i++) x[i] /= sum;
}

/** The model, with room for everything that it computes. `run` fills the rooms; whoever draws reads them. */
export class Glass {
  constructor({config, weights}) {
    Object.assign(this, {config, weights});
    const {d_model: d, d_ff, n_heads: H, n_kv_heads, n_layers, max_seq_len: T} = config;
    this.d_head = d / H;
    this.d_kv = this.d_head * n_kv_heads;
    const rows = (width) => new Float32Array(T * width);
    this.embedded = rows(d);  // (T, d_model), tokens alone
    this.layers = Array.from({length: n_layers}, () => ({
      before: rows(d), normed1: rows(d), query: rows(d), key: rows(this.d_kv), value: rows(this.d_kv),
      scores: new Float32Array(H * T * T), weights: new Float32Array(H * T * T),  // (H, T, T)
      heads: rows(d), attention: rows(d), between: rows(d), normed2: rows(d),
      gate: config.activation === "swiglu" ? rows(d_ff) : null,
      hidden: rows(d_ff), feed_forward: rows(d), after: rows(d), lengths: new Float32Array(H * T), measured: 0,
    }));
    this.final = rows(d);
    this.logits = rows(config.vocab_size);  // (T, V), a row when it is asked for
    this.known = new Set();  // positions whose logits are there
    this.ids = [];
    this.removed = new Set();
  }

  /**
   * Compute everything for these ids.
   *
   * removed: names of parts that say nothing: "0.head.2", "1.unit.37", "3.attention", "3.feed_forward", "2" (a whole
   * layer). Rows of a common beginning and layers before the first change are those of the last run. Returns how many
   * rows were computed, summed over the layers.
   */
  run(ids, removed = new Set()) {
    const {n_layers, max_seq_len, vocab_size} = this.config;
    if (!ids.length || ids.length > max_seq_len) throw new RangeError(`need 1 to ${max_seq_len} tokens, got ${ids.length}`);
    const unknown = ids.findIndex((id) => !(Number.isInteger(id) && id >= 0 && id < vocab_size));
    if (unknown >= 0) throw new RangeError(`there is no token ${ids[unknown]}: ids go from 0 to ${vocab_size - 1}`);
    for (const part of removed) if (!this.has(part)) throw new RangeError(`there is no part ${part} to remove`);
    let same = 0;
    while (same < ids.length && ids[same] === this.ids[same]) same++;
    const changed = [...removed, ...this.removed].filter((name) => removed.has(name) !== this.removed.has(name));
    const altered = Math.min(n_layers, ...changed.map((name) => parseInt(name)));
    Object.assign(this, {ids: [...ids], removed: new Set(removed)});
    this.embed(same, ids.length);
    const first = (l) => (l < altered ? same : 0);
    this.layers.forEach((layer, l) => {
      this.block(l, layer, first(l), ids.length);
      layer.measured = Math.min(layer.measured, first(l));
    });
    this.known.forEach((position) => position >= first(n_layers - 1) && this.known.delete(position));
    return this.layers.reduce((computed, _, l) => computed + ids.length - first(l), 0);
  }

  /** Whether the model has a part of this name. */
  has(part) {
    const [layer, kind, index] = part.split("."), among = (text, n) => /^\d+$/.test(text) && Number(text) < n;
    if (!among(layer, this.config.n_layers)) return false;
    if (index === undefined) return [undefined, "attention", "feed_forward"].includes(kind);
    return among(index, {head: this.config.n_heads, unit: this.config.d_ff}[kind] ?? 0);
  }

  /** Token embeddings, and what tells positions apart, into the residual stream. */
  embed(first, last) {
    const {d_model: d, embedding_factor} = this.config, x = this.layers[0].before, positions = this.weights["positions.weight"];
    const {weight, scale} = this.matrix("token_embedding");
    for (let t = first; t < last; t++) {
      const factor = embedding_factor * (scale?.[this.ids[t]] ?? 1);
      for (let i = 0; i < d; i++) {
        this.embedded[t * d + i] = factor * weight[this.ids[t] * d + i];
        x[t * d + i] = this.embedded[t * d + i] + positions[t * d + i];
      }
    }
  }

  /** One block. Pre-norm: x + attention(norm(x)), then + feed-forward(norm(that)); post-norm: norm(x + attention(x)) … */
  block(l, layer, first, last) {
    const {d_model: d, d_ff, norm_position} = this.config, at = `blocks.${l}.`, pre = norm_position === "pre";
    const gone = (part) => this.removed.has(part);
    const name = (part) => this.matrix(at + part);
    const read1 = pre ? layer.normed1 : layer.before, read2 = pre ? layer.normed2 : layer.between;
    if (pre) normalize(layer.before, this.norm(`${at}norm1`), layer.normed1, d, first, last);
    linear(read1, name("attention.q_proj"), layer.query, d, d, first, last);
    linear(read1, name("attention.k_proj"), layer.key, d, this.d_kv, first, last);
    linear(read1, name("attention.v_proj"), layer.value, d, this.d_kv, first, last);
    this.rotate(layer.query, d, first, last);
    this.rotate(layer.key, this.d_kv, first, last);
    for (let h = 0; h < this.config.n_heads; h++) this.attend(layer, h, first, last, gone(`${l}.head.${h}`));
    linear(layer.heads, name("attention.out_proj"), layer.attention, d, d, first, last);
    if (gone(`${l}`) || gone(`${l}.attention`)) layer.attention.fill(0, first * d, last * d);
    for (let i = first * d; i < last * d; i++) layer.between[i] = layer.before[i] + layer.attention[i];
    if (!pre) normalize(layer.between, this.norm(`${at}norm1`), layer.between, d, first, last);

    if (pre) normalize(layer.between, this.norm(`${at}norm2`), layer.normed2, d, first, last);
    linear(read2, name("feed_forward.up_proj"), layer.hidden, d, d_ff, first, last);
    const activation = ACTIVATIONS[this.config.activation], {gate, hidden} = layer;
    if (gate) linear(read2, name("feed_forward.gate_proj"), gate, d, d_ff, first, last);
    for (let i = first * d_ff; i < last * d_ff; i++) hidden[i] = gate ? activation(gate[i]) * hidden[i] : activation(hidden[i]);
    for (const part of this.removed) {
      const [where, kind, unit] = part.split(".");
      if (kind === "unit" && +where === l) for (let t = first; t < last; t++) layer.hidden[t * d_ff + +unit] = 0;
    }
    linear(layer.hidden, name("feed_forward.down_proj"), layer.feed_forward, d_ff, d, first, last);
    if (gone(`${l}`) || gone(`${l}.feed_forward`)) layer.feed_forward.fill(0, first * d, last * d);
    for (let i = first * d; i < last * d; i++) layer.after[i] = layer.between[i] + layer.feed_forward[i];
    if (!pre) normalize(layer.after, this.norm(`${at}norm2`), layer.after, d, first, last);
    if (gone(`${l}`)) layer.after.set(layer.before.subarray(first * d, last * d), first * d);
    if (l + 1 < this.layers.length) this.layers[l + 1].before.set(layer.after.subarray(first * d, last * d), first * d);
  }

  /** RoPE: turn each pair of features by the position times the pair's frequency. rows (T, width), in place. */
  rotate(rows, width, first, last) {
    const {rope_frequencies: frequencies, rope_interleaved: interleaved} = this.config, D = this.d_head;
    if (!frequencies) return;
    for (let t = first; t < last; t++) for (let head = t * width; head < (t + 1) * width; head += D) {
      for (const [pair, frequency] of frequencies.entries()) {
        const i = head + (interleaved ? 2 * pair : pair), j = interleaved ? i + 1 : i + D / 2;
        const cos = Math.cos(t * frequency), sin = Math.sin(t * frequency), x = rows[i], y = rows[j];
        rows[i] = x * cos - y * sin;
        rows[j] = x * sin + y * cos;
      }
    }
  }

  /** One head: scores, their softmax over what is visible, and the mix of values. A head that is gone mixes nothing. */
  attend(layer, h, first, last, gone) {
    const {d_model: d, n_heads, n_kv_heads, max_seq_len: room} = this.config, D = this.d_head;
    const kv = Math.floor((h * n_kv_heads) / n_heads) * D;  // several query heads may share a key-value head
    const slope = this.config.alibi_slopes?.[h] ?? 0;  // ALiBi: what is far counts less
    for (let t = first; t < last; t++) {
      const row = (h * room + t) * room, q = t * d + h * D;
      layer.scores.fill(-Infinity, row, row + room);  // later tokens are not seen
      layer.weights.fill(0, row, row + room);
      for (let s = 0; s <= t; s++) {
        let score = 0;
        for (let i = 0; i < D; i++) score += layer.query[q + i] * layer.key[s * this.d_kv + kv + i];
        layer.weights[row + s] = layer.scores[row + s] = score / Math.sqrt(D) - slope * (t - s);
      }
      softmax(layer.weights, row, t + 1);
      layer.heads.fill(0, q, q + D);
      for (let s = 0; s <= t && !gone; s++) {
        const weight = layer.weights[row + s];
        for (let i = 0; i < D; i++) layer.heads[q + i] += weight * layer.value[s * this.d_kv + kv + i];
      }
    }
  }

  /** From the residual stream x to logits: the last norm, then the output matrix. */
  read(x, normed, logits, first, last) {
    const {d_model: d, vocab_size} = this.config;
    if (this.weights["final_norm.weight"]) normalize(x, this.norm("final_norm"), normed, d, first, last);
    else normed.set(x.subarray(first * d, last * d), first * d);  // post-norm: the last block has normalized already
    const output = this.matrix(this.weights["output.weight"] ? "output" : "token_embedding");  // tied
    linear(normed, output, logits, d, vocab_size, first, last);
  }

  /** The logit lens: the logits at one position as if layer l were the last one; l = −1 reads the embeddings. */
  lens(l, position) {
    const {d_model: d, vocab_size} = this.config;
    const x = l < 0 ? this.layers[0].before : this.layers[l].after;
    const logits = new Float32Array(vocab_size);
    this.read(x.slice(position * d, (position + 1) * d), new Float32Array(d), logits, 0, 1);
    return logits;
  }

  /** The logits at one position. */
  logitsAt(position) {
    const {vocab_size} = this.config;
    if (!this.known.has(position)) this.read(this.layers.at(-1).after, this.final, this.logits, position, position + 1);
    this.known.add(position);
    return this.logits.subarray(position * vocab_size, (position + 1) * vocab_size);
  }

  /**
   * How long the vectors are that the heads of layer l write into the stream of one position, one from each earlier
   * token: weight · |W_out value|, (H, position + 1). A head that is removed, or whose layer is, writes none.
   */
  written(l, position) {
    const {d_model: d, n_heads, n_kv_heads, max_seq_len: room} = this.config, D = this.d_head, layer = this.layers[l];
    const {weight: W, scale} = this.matrix(`blocks.${l}.attention.out_proj`), gone = (part) => this.removed.has(part);
    for (; layer.measured <= position; layer.measured++) for (let h = 0; h < n_heads; h++) {
      const value = layer.measured * this.d_kv + Math.floor((h * n_kv_heads) / n_heads) * D;
      let square = 0;
      for (let o = 0; o < d; o++) {
        let sum = 0;
        for (let i = 0; i < D; i++) sum += W[o * d + h * D + i] * layer.value[value + i];
        square += (sum * (scale?.[o] ?? 1)) ** 2;
      }
      layer.lengths[h * room + layer.measured] = Math.sqrt(square);
    }
    return Array.from({length: n_heads}, (_, h) => {
      const none = gone(`${l}`) || gone(`${l}.attention`) || gone(`${l}.head.${h}`), row = (h * room + position) * room;
      return layer.lengths.slice(h * room, h * room + position + 1).map((x, s) => (none ? 0 : x * layer.weights[row + s]));
    });
  }

  /** A linear layer's weights, with the scale of its rows and its bias where it has them. */
  matrix(name) {
    const W = this.weights;
    return {weight: W[`${name}.weight`], scale: W[`${name}.scale`], bias: W[`${name}.bias`]};
  }

  norm(name) { return {...this.matrix(name), centred: this.config.norm === "layer", eps: this.config.norm_eps}; }
}

const ROUNDING = 1e-6;  // as in course_lib/sampling.py: a sum that is nearer to p than this has reached it

/**
 * The probabilities from which the next token is drawn: softmax(filter(logits / temperature)), top-k, top-p, min-p.
 * Null leaves a filter out; temperature 0 puts all on the largest logit.
 */
export function nextTokenDistribution(logits, {temperature = 1, topK = null, topP = null, minP = null} = {}) {
  const n = logits.length, [[best, most]] = largest(logits, 1);
  let scaled = new Float64Array(n);
  for (let i = 0; i < n; i++) scaled[i] = temperature > 0 ? (logits[i] - most) / temperature : i === best ? 0 : -Infinity;
  if (topK !== null) {
    const kth = Float64Array.from(scaled).sort().at(-Math.min(topK, scaled.length));
    scaled = scaled.map((x) => (x < kth ? -Infinity : x));
  }
  if (topP !== null && topP < 1) {
    const p = probabilities(scaled), small = (1 - topP) / n;  // those below it are outside, for all of them together are
    const order = [...p.keys()].filter((i) => p[i] >= small).sort((i, j) => p[j] - p[i] || i - j);
    const nucleus = new Set();
    let sum = 0;
    for (const i of order) {
      if (nucleus.size && sum > topP - ROUNDING) break;
      nucleus.add(i);
      sum += p[i];
    }
    scaled = scaled.map((x, i) => (nucleus.has(i) ? x : -Infinity));
  }
  if (minP !== null) {
    const highest = scaled.reduce((a, b) => Math.max(a, b), -Infinity);
    scaled = scaled.map((x) => (x < highest + Math.log(minP) - ROUNDING ? -Infinity : x));
  }
  return probabilities(scaled);
}

function probabilities(logits) {
  const p = Float64Array.from(logits);
  softmax(p, 0, p.length);
  return p;
}

/** The k largest of some numbers by `size`, largest first, equal ones in their order: [index, number]. */
export function largest(numbers, k, size = (x) => x) {
  const found = [];
  for (let i = 0; i < numbers.length; i++) {
    const x = size(numbers[i]);
    if (found.length === k && !(x > found[k - 1][2])) continue;
    let place = found.length;
    while (place > 0 && x > found[place - 1][2]) place--;
    found.splice(place, 0, [i, numbers[i], x]);
    if (found.length > k) found.pop();
  }
  return found.map(([i, number]) => [i, number]);
}

/** A generator of numbers in [0, 1) that the same seed repeats (Mulberry32). */
export function randomNumbers(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let x = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The token at which the running sum of the probabilities passes `random`, a number in [0, 1). */
export function draw(p, random) {
  let sum = 0, last = 0;
  for (let i = 0; i < p.length; i++) {
    if (p[i] > 0) last = i;
    sum += p[i];
    if (random < sum) return i;
  }
  return last;
}
