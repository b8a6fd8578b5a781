/** Where requests and answers begin and end, in the protocols of Redis and PostgreSQL. */

/** A request, or a part of one. */
export interface RequestFrame {
  readonly length: number;
  /** What people read; undefined for what does not count. */
  readonly text?: string | undefined;
  /** Whether an answer follows. */
  readonly answers: boolean;
}

/** An answer, or a part of one. */
export interface ReplyFrame {
  readonly length: number;
  /** Whether an answer ends with it. */
  readonly ends: boolean;
}

/** How one connection is read. */
export interface Reader {
  /** The first request in `bytes`, if it is there as a whole. */
  request(bytes: Buffer): RequestFrame | undefined;
  /** The first answer in `bytes`, or a message in between, if it is there as a whole. */
  reply(bytes: Buffer): ReplyFrame | undefined;
}

/** Begins to read a connection. */
export type Protocol = () => Reader;

const SHOWN = 60;

/**
 * Redis. A request counts if one of its words contains `name`: a client's introduction, its subscriptions and its
 * keepalives do not; and so does an INCRBY that follows such a SET, in the plain commands of an acquire. What contains
 * `aside` too does not count.
 */
export function resp(name: string, aside: string): Protocol {
  return () => {
    let last = '';
    return {
      request(bytes) {
        const end = endOfValue(bytes, 0);
        if (end < 0) return undefined;
        const words = wordsOf(bytes.subarray(0, end));
        const [command = ''] = words;
        const has = (text: string) => words.some((word) => word.includes(text));
        const counts = (has(name) && !has(aside)) || (command === 'INCRBY' && last === 'SET');
        last = counts ? command : '';
        // A subscription is confirmed by a message; by an answer only where messages have a connection of their own.
        const answers = !/subscribe$/i.test(command);
        return { length: end, answers, text: counts ? show(words) : undefined };
      },
      reply(bytes) {
        const end = endOfValue(bytes, 0);
        if (end < 0) return undefined;
        return { length: end, ends: bytes[0] !== PUSH };
      },
    };
  };
}

/** The first byte of a message that is no answer. */
export const PUSH = 0x3e;

function show(words: readonly string[]): string {
  const text = words.join(' ').replaceAll(/\s+/g, ' ');
  return text.length > SHOWN * 3 ? `${text.slice(0, SHOWN)} … ${text.slice(-2 * SHOWN)}` : text;
}

/** The words of a request, which is an array of texts. */
function wordsOf(bytes: Buffer): string[] {
  const words: string[] = [];
  let at = bytes.indexOf('\r\n') + 2;
  while (at < bytes.length) {
    const line = bytes.indexOf('\r\n', at);
    const length = Number(bytes.toString('latin1', at + 1, line));
    words.push(bytes.toString('utf8', line + 2, line + 2 + length));
    at = line + 2 + length + 2;
  }
  return words;
}

/** Where the value ends that begins at `at`; -1 if it is not there as a whole. */
export function endOfValue(bytes: Buffer, at: number): number {
  const line = bytes.indexOf('\r\n', at);
  if (line < 0) return -1;
  const kind = String.fromCharCode(bytes[at] ?? 0);
  const count = Number(bytes.toString('latin1', at + 1, line));
  let end = line + 2;
  if ('$!='.includes(kind)) {
    if (count >= 0) end += count + 2;
    return end <= bytes.length ? end : -1;
  }
  if (!'*~>%|'.includes(kind)) return end;
  // An attribute goes ahead of a value, and belongs to it.
  const parts = kind === '%' ? 2 * count : kind === '|' ? 2 * count + 1 : count;
  for (let part = 0; part < parts && end >= 0; part += 1) end = endOfValue(bytes, end);
  return end;
}

/** The first byte of what ends each answer of PostgreSQL. */
const READY = 0x5a;

/** PostgreSQL. Each statement counts. */
export const POSTGRES: Protocol = () => {
  let isFirst = true;
  return {
    request(bytes) {
      const head = isFirst ? 0 : 1;
      if (bytes.length < head + 4) return undefined;
      const length = head + bytes.readInt32BE(head);
      if (bytes.length < length) return undefined;
      if (isFirst) {
        isFirst = false;
        return { length, answers: true };
      }
      const kind = String.fromCharCode(bytes[0] ?? 0);
      // A statement as text, or the end of one in parts.
      if (kind === 'Q') {
        return { length, answers: true, text: bytes.toString('utf8', 5, length - 1) };
      }
      return kind === 'S' ? { length, answers: true, text: 'Sync' } : { length, answers: false };
    },
    reply(bytes) {
      if (bytes.length < 5) return undefined;
      const length = 1 + bytes.readInt32BE(1);
      if (bytes.length < length) return undefined;
      return { length, ends: bytes[0] === READY };
    },
  };
};
