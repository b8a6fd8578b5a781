// One of the processes that the buyers come from. It does what crowd.mjs asks for, one job after
// another, until its parent disconnects.

import { connect } from 'holdfast';
import { openRedis } from './redis.mjs';
import { serve } from './shop.mjs';

let redis;
let locks;

const jobs = {
  async connect({ url, lockPrefix }) {
    locks = await connect(url, { prefix: lockPrefix });
    redis = await openRedis(url);
  },

  async sale(visit) {
    await serve(redis, locks, visit, (answer) => tell({ answer }));
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

/** Sends to the parent. If that has ended, the message is lost, and `disconnect` follows. */
function tell(message) {
  if (process.connected) process.send(message, () => {});
}
