// One participant, in a process of its own.

import { answer } from '../answer.mjs';
import { measure, namesFor } from '../pairs/measure.mjs';
import { PEERS } from './peers.mjs';

const { open } = PEERS.find(({ id }) => id === process.argv[2]);
let peer;

answer({
  async open(url) {
    peer = await open(url);
  },
  run({ kind, name, level, ms }) {
    const names = kind === 'one' ? Array(level).fill(name) : namesFor(process.pid, level);
    return measure(peer, { names, level, ms });
  },
});
