// One participant, in a process of its own.

import { answer } from '../answer.mjs';
import { measure, namesFor } from '../pairs/measure.mjs';

const TTL_MS = 10_000;
let peer;

answer({
  async open(url) {
    peer = process.argv[2].startsWith('holdfast') ? await openHoldfast(url) : await openUniversal();
  },
  run({ level, ms }) {
    return measure(peer, { names: namesFor(process.pid, level), level, ms });
  },
});

async function openHoldfast(url) {
  const { connect } = await import('../../dist/index.mjs');
  const locks = await connect(url, { ttl: TTL_MS });
  return {
    acquire: (name) => locks.acquire(name),
    async release(_name, lock) {
      if (!(await lock.release())) throw new Error('release found the lock lost');
    },
  };
}

async function openUniversal() {
  const { createLock, MemoryAdapter } = await import('redlock-universal');
  const adapter = new MemoryAdapter();
  return {
    async acquire(key) {
      const lock = createLock({ adapter, key, ttl: TTL_MS, circuitBreaker: false });
      return { lock, handle: await lock.acquire() };
    },
    async release(_name, { lock, handle }) {
      if (!(await lock.release(handle))) throw new Error('release found the lock lost');
    },
  };
}
