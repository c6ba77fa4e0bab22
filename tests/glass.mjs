// What the page's engine gives for jobs on standard input: one line of JSON in, one out. See test_glass.py.
import {readFileSync} from "node:fs";
import {createInterface} from "node:readline";
import {Glass, draw, nextTokenDistribution, randomNumbers, readModel} from "../course_lib/live/glass/engine.js";
import {waysTo} from "../course_lib/live/glass/flow.js";
import {tokenizerOf} from "../course_lib/live/glass/text.js";

const [model] = process.argv.slice(2), read = readModel(new Uint8Array(readFileSync(model)));
const tokenizer = tokenizerOf(read.tokenizer);
let glass = new Glass(read);
const JOBS = {
  run: ({ids, removed = [], fresh = false, first = 0}) => {
    if (fresh) glass = new Glass(read);
    const rows = glass.run(ids, new Set(removed));
    const logits = ids.map((_, t) => [...glass.logitsAt(t)]).slice(first);
    return {rows, logits};
  },
  weights: ({layer, head}) => {
    const T = glass.ids.length, room = read.config.max_seq_len, all = glass.layers[layer].weights;
    return glass.ids.map((_, t) => [...all.subarray((head * room + t) * room, (head * room + t) * room + T)]);
  },
  lens: ({layer, position}) => [...glass.lens(layer, position)],
  next: ({logits, how}) => [...nextTokenDistribution(Float32Array.from(logits.map((x) => x ?? -Infinity)), how)],
  draws: ({p, n, seed}) => { const random = randomNumbers(seed); return Array.from({length: n}, () => draw(p, random())); },
  encode: ({text}) => tokenizer.encode(text),
  decode: ({ids}) => tokenizer.decode(ids),
  show: ({ids}) => ids.map(tokenizer.show),
  written: ({layer, position}) => glass.written(layer, position).map((each) => [...each]),
  ways: ({position, faintest}) => waysTo(glass, position, faintest).ribbons,
  time: ({ids, changed, removed}) => {
    const took = (act) => { const began = performance.now(); act(); return performance.now() - began; };
    const middle = (act, before) => {
      const all = Array.from({length: 30}, () => { before(); return took(act); });
      return all.sort((a, b) => a - b)[15];
    };
    const plain = () => { glass.run(ids); glass.logitsAt(ids.length - 1); };
    return {
      whole: middle(() => { glass.ids = []; plain(); }, plain),
      "a word swapped": middle(() => glass.run(changed), plain),
      "a head removed": middle(() => glass.run(ids, new Set(removed)), plain),
      "a new token": middle(() => glass.run(ids), () => glass.run(ids.slice(0, -1))),
      "a sampling slider": middle(() => nextTokenDistribution(glass.logitsAt(ids.length - 1), {topK: 40, topP: 0.9, minP: 0.02}), plain),
    };
  },
};
for await (const line of createInterface({input: process.stdin})) {
  const {job, ...given} = JSON.parse(line);
  let answer;
  try { answer = JOBS[job](given); } catch (error) { answer = {error: error.message}; }
  console.log(JSON.stringify(answer));
}
