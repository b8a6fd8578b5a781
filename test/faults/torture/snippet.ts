/** The lock that most services begin with, as a control: what does not hold must not be judged to hold. */

import { randomUUID } from 'node:crypto';
import { Dice } from '../../support/dice.js';
import { now } from '../../support/history.js';
import { createClient } from '../../support/ledger.js';
import { RedisServer } from '../../support/server.js';
import { sleep } from '../../support/wait.js';
import type { CallRecord } from './record.js';

const CALLERS = 3;
const TURNS = 12;
const LEASE_MS = 100;
/** Some of the work outlasts the lease, and nobody notices. */
const WORK_MS = 160;

const RELEASE =
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/** The calls of some callers of `SET key token NX PX lease`, who work without a look at the clock. */
export async function recordSnippet(seed: number): Promise<CallRecord[]> {
  const server = await RedisServer.start();
  const redis = createClient(server.url);
  const records: CallRecord[] = [];
  const caller = async (process: string, dice: Dice) => {
    for (let turn = 1; turn <= TURNS; turn++) {
      const hold = `${process}.${turn}`;
      const of = { process, lock: 'a', hold };
      const token = randomUUID();
      let call = now();
      while ((await redis.set('a', token, 'PX', LEASE_MS, 'NX')) === null) {
        await sleep(dice.below(5));
        call = now();
      }
      records.push({ ...of, action: 'acquire', call, return: now(), outcome: 'ok' });
      await sleep(dice.below(WORK_MS));
      // What it believes: it has not released the lock.
      const held = now();
      records.push({ ...of, action: 'held', call: held, return: held, until: held, outcome: 'ok' });
      const released = now();
      const freed = await redis.eval(RELEASE, 1, 'a', token);
      const outcome = freed === 1 ? 'ok' : 'unknown';
      records.push({ ...of, action: 'release', call: released, return: now(), outcome });
    }
  };
  try {
    const callers = Array.from({ length: CALLERS }, (_, i) =>
      caller(`p${i + 1}`, new Dice(seed + i)),
    );
    await Promise.all(callers);
  } finally {
    redis.disconnect();
    await server.stop();
  }
  return records;
}
