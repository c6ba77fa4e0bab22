// Text into ids and back: words, or bytes that are joined in pairs.

const LETTER = "[\\p{L}\\p{N}_]";
const WORDS = new RegExp(`<${LETTER}+>|(?<!${LETTER})${LETTER}'|${LETTER}+|[^\\p{L}\\p{N}_\\s]`, "gu");

/**
 * A tokenizer from what `pack` says of it. `encode` gives {ids, unknown}, `decode` a text, `show` one token as it is
 * shown; `ends` says whether a token ends the text.
 */
export function tokenizerOf({kind, ...told}) {
  return kind === "words" ? words(told) : bytePairs(told);
}

/** One token per word, `<bos>` before them; unknown words are listed, and stand for nothing. */
function words({tokens, bos, eos}) {
  const known = new Map(tokens.map((token, id) => [token, id]));
  return {
    size: tokens.length,
    encode(text) {
      const all = text.toLowerCase().match(WORDS) ?? [];
      return {ids: [bos, ...all.filter((word) => known.has(word)).map((word) => known.get(word))],
              unknown: all.filter((word) => !known.has(word))};
    },
    decode: (ids) => ids.filter((id) => id > eos).map((id) => tokens[id]).join(" "),
    show: (id) => tokens[id],
    ends: (id) => id === eos,
  };
}

/** The character that GPT-2's vocabulary writes for each byte: itself where it can be seen, else one from 256 on. */
function alphabet() {
  let hidden = 256;
  const seen = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  return Array.from({length: 256}, (_, byte) => String.fromCodePoint(seen(byte) ? byte : hidden++));
}

const PIECES = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;  // GPT-2's

/** Byte-pair encoding as in GPT-2: bytes, of which the neighbours that were merged first are merged first. */
function bytePairs({tokens, merges, special, digits}) {
  const known = new Map(tokens.map((token, id) => [token, id])), rank = new Map(merges.map((pair, at) => [pair, at]));
  const letters = alphabet(), byteOf = new Map(letters.map((letter, byte) => [letter, byte]));
  const names = special.map((id) => tokens[id].replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).sort((a, b) => b.length - a.length);
  const cut = names.length ? new RegExp(`(${names.join("|")})`) : /(?!)/, isSpecial = new Set(special), found = new Map();

  function merge(piece) {
    const parts = [...new TextEncoder().encode(piece)].map((byte) => letters[byte]);
    while (parts.length > 1) {
      let best = -1, first = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        const at = rank.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
        if (at < first) [best, first] = [i, at];
      }
      if (best < 0) break;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
    return parts.map((part) => known.get(part));
  }

  /** The bytes of some tokens as text; half a character is �. */
  function decode(ids) {
    const bytes = ids.flatMap((id) => isSpecial.has(id) ? [...new TextEncoder().encode(tokens[id])]
                                                        : [...tokens[id]].map((letter) => byteOf.get(letter)));
    return new TextDecoder().decode(Uint8Array.from(bytes));
  }

  return {
    size: tokens.length, decode,
    encode(text) {
      const ids = text.split(cut).flatMap((part, i) => {
        if (i % 2) return [known.get(part)];
        const split = digits ? part.split(/(\p{N})/u) : [part];
        return split.flatMap((each) => each.match(PIECES) ?? []).flatMap((piece) => {
          if (!found.has(piece)) found.set(piece, merge(piece));
          return found.get(piece);
        });
      });
      return {ids, unknown: []};
    },
    show: (id) => decode([id]).replace(/^ /, "·").replaceAll("\n", "↵") || "∅",  // a space before a word can be seen
    ends: (id) => isSpecial.has(id),
  };
}
