// One participant of the quorum, in a process of its own.

import { answer } from '../answer.mjs';
import { measure, namesFor } from '../pairs/measure.mjs';
import { PEERS } from './peers.mjs';

const { open } = PEERS.find(({ id }) => id === process.argv[2]);
let peer;

answer({
  async open(urls) {
    peer = await open(urls);
  },
  run({ level, ms }) {
    return measure(peer, { names: namesFor(process.pid, level), level, ms });
  },
});
