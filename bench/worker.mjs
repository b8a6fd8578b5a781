// One participant in a process of its own, so that its memory and its threads burden nobody else.
// The parent asks one thing at a time.

import { measure, namesFor } from './measure.mjs';
import { PEERS } from './peers.mjs';

const { open } = PEERS.find(({ id }) => id === process.argv[2]);
const nameLists = new Map();
let peer;
let held;

function names(level) {
  if (!nameLists.has(level)) nameLists.set(level, namesFor(process.pid, level));
  return nameLists.get(level);
}

const commands = {
  async open(url) {
    peer = await open(url);
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
};

process.on('message', async ({ command, argument }) => {
  try {
    process.send({ value: await commands[command](argument) });
  } catch (error) {
    process.send({ error: describe(error) });
  }
});

function describe(error) {
  const { name = 'Error', message = String(error), cause } = error ?? {};
  return cause === undefined ? `${name}: ${message}` : `${name}: ${message} (${cause})`;
}

// However the parent ends, its end of the channel closes.
process.on('disconnect', () => process.exit());
