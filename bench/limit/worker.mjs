// A client that only writes prepared commands and waits for the replies.

import { connect } from 'node:net';
import { answer } from '../answer.mjs';
import { NAMES } from '../names.mjs';

const MARK = 'answered';
/** The reply to ECHO, which ends a batch. */
const MARKED = `$${MARK.length}\r\n${MARK}\r\n`;

let socket;
let replies = '';
let onMark;

answer({
  open(url) {
    const { hostname, port } = new URL(url);
    socket = connect(Number(port), hostname).setNoDelay();
    socket.setEncoding('latin1').on('data', (text) => {
      replies += text;
      const at = replies.lastIndexOf(MARKED);
      if (at === -1) return;
      const all = replies.slice(0, at);
      replies = replies.slice(at + MARKED.length);
      onMark(all);
    });
  },

  /** Runs the two `steps` for `pairs` names, `level` in flight: the commands of each leave in one write. */
  async run({ steps, pairs, level }) {
    const batches = [];
    for (let first = 0; first < pairs; first += level) {
      for (const step of steps) batches.push(batch(step, first, level));
    }
    const cpuBefore = process.cpuUsage();
    const start = performance.now();
    for (const bytes of batches) {
      const said = await send(bytes);
      const error = /^-.*$/m.exec(said);
      if (error !== null) throw new Error(error[0]);
    }
    const elapsed = performance.now() - start;
    const cpu = process.cpuUsage(cpuBefore);
    const done = batches.length / steps.length;
    return {
      pairs: done * level,
      throughput: (done * level) / (elapsed / 1000),
      clientCpu: (cpu.user + cpu.system) / (done * level),
    };
  },
});

function send(bytes) {
  return new Promise((resolve) => {
    onMark = resolve;
    socket.write(bytes);
  });
}

/** `step`: commands, in which `{name}` and `{n}` stand for the parts that differ between names. */
function batch(step, first, level) {
  const commands = Array.from({ length: level }, (_, at) => {
    const n = String(first + at);
    const name = `${NAMES}limit:${n}`;
    const fill = (part) => part.replaceAll('{name}', name).replaceAll('{n}', n);
    return step.map((parts) => encode(parts.map(fill))).join('');
  });
  return Buffer.from([...commands, encode(['ECHO', MARK])].join(''));
}

function encode(parts) {
  return `*${parts.length}\r\n${parts.map((part) => `$${Buffer.byteLength(part)}\r\n${part}\r\n`).join('')}`;
}
