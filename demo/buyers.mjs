// One of the processes that the buyers come from. It does what crowd.mjs asks for, one job after
// another, until its parent lets go of it.

import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'holdfast';
import { openRedis } from './redis.mjs';
import { buyWithLock, buyWithoutLock, Shop } from './shop.mjs';

let redis;
let locks;

const jobs = {
  async connect({ url, lockPrefix }) {
    locks = await connect(url, { prefix: lockPrefix });
    redis = await openRedis(url);
  },

  async sale({ visits, prefix, withLock }) {
    const shop = new Shop(redis, prefix);
    const buy = withLock
      ? (buyer) => buyWithLock(shop, locks, buyer)
      : (buyer) => buyWithoutLock(shop, buyer);
    await Promise.all(
      visits.map(async ({ buyer, after }) => {
        await sleep(after);
        tell({ answer: await buy(buyer) });
      }),
    );
  },
};

process.on('message', async ({ job, ...details }) => {
  try {
    await jobs[job](details);
    tell({ done: true });
  } catch (error) {
    tell({ error: error.message });
  }
});

process.on('disconnect', async () => {
  await locks?.close();
  process.exit();
});

/** Tells the parent. If it is gone, there is nobody to tell, and `disconnect` follows. */
function tell(message) {
  if (process.connected) process.send(message, () => {});
}
