// One participant of the pairs, in a process of its own.

import { answer } from '../answer.mjs';
import { measure, namesFor } from './measure.mjs';
import { PEERS } from './peers.mjs';

const { open, again = false } = PEERS.find(({ id }) => id === process.argv[2]);
const nameLists = new Map();
let peer;
let held;

function names(level) {
  if (!nameLists.has(level)) nameLists.set(level, namesFor(process.pid, level));
  return nameLists.get(level);
}

answer({
  async open(url) {
    peer = { ...(await open(url)), again };
  },
  async hold(name) {
    held = await peer.acquire(name);
  },
  async free(name) {
    await peer.release(name, held);
  },
  run({ level, ms }) {
    return measure(peer, { names: names(level), level, ms });
  },
});
