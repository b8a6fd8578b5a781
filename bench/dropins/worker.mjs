// One side of a drop-in, or the core, in a process of its own.

import { answer } from '../answer.mjs';
import { NAMES } from '../names.mjs';
import { measure, namesFor } from '../pairs/measure.mjs';
import { HOT, HOT_CALLERS } from './levels.mjs';
import { open } from './peers.mjs';

const [id, side] = process.argv[2].split(', ');
// The servers of a quorum keep nothing, of which holdfast warns.
process.removeAllListeners('warning');
const nameLists = new Map();
let peer;

answer({
  async open(urls) {
    peer = await open(id, side, urls);
  },
  run({ level, ms }) {
    if (level === HOT) {
      const names = Array(HOT_CALLERS).fill(`${NAMES}${process.pid}:hot`);
      return measure(peer, { names, level: HOT_CALLERS, ms });
    }
    if (!nameLists.has(level)) nameLists.set(level, namesFor(process.pid, level));
    return measure(peer, { names: nameLists.get(level), level, ms });
  },
  /** Takes a lock by each of so many clients, and answers once all are held. */
  async connect({ urls, clients }) {
    const peers = Array.from({ length: clients }, () => open(id, side, urls));
    for (const [i, each] of (await Promise.all(peers)).entries()) {
      await each.acquire(`${NAMES}${process.pid}:client:${i}`);
    }
  },
  /** Takes so many locks, and answers how many bytes each takes in this process. */
  async hold(count) {
    const before = process.memoryUsage.rss();
    const held = [];
    for (const name of namesFor(`${process.pid}:held`, 1).slice(0, count)) {
      held.push(await peer.acquire(name));
    }
    const bytes = (process.memoryUsage.rss() - before) / count;
    for (const [i, name] of namesFor(`${process.pid}:held`, 1).slice(0, count).entries()) {
      await peer.release(name, held[i]);
    }
    return bytes;
  },
});
