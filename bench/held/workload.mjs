// Thousands of locks that one process holds: what keeping them costs.

import { setTimeout as sleep } from 'node:timers/promises';
import { Child } from '../child.mjs';
import { OWN } from '../contenders.mjs';
import { NAMES } from '../names.mjs';
import { judge } from '../outcome.mjs';

const COUNT = 10_000;
const SETTLE_MS = 1000;

export const HELD = { id: 'held', run };

async function run({ url, admin, flags: { heldSeconds }, fail }) {
  const title = `HELD  ${COUNT} locks with a lease of 10 s, held by one process for ${heldSeconds} s`;
  process.stderr.write(`held: ${heldSeconds} s\n`);
  const child = new Child('held/worker.mjs', OWN);
  try {
    return [title, ...report(await measure(child, { url, admin, ms: heldSeconds * 1000 }))];
  } catch (error) {
    fail(OWN, 'misbehaved', error.message);
    return [title];
  } finally {
    child.end();
  }
}

async function measure(child, { url, admin, ms }) {
  const names = Array.from({ length: COUNT }, (_, index) => `${NAMES}${child.pid}:held:${index}`);
  await child.ask('open', url);
  await child.ask('acquire', names);
  await sleep(SETTLE_MS);
  const cpuBefore = await admin.cpu();
  const result = await child.ask('keep', ms, ms);
  const serverShare = ((await admin.cpu()) - cpuBefore) / (ms * 1000);
  const there = await admin.exists(names.map((name) => `lock:${name}`));
  if (there !== COUNT || result.lost > 0) {
    throw new Error(`${result.lost} locks were lost, ${there} of ${COUNT} are there`);
  }
  return { ...result, serverShare };
}

function report({ share, serverShare, lowest, renewals, requests }) {
  const percent = (value) => `${(value * 100).toFixed(1)} % of a core`;
  return [
    '',
    `renewals ${renewals.toFixed(0)}/s, requests ${requests.toFixed(0)}/s; ` +
      `the process ${percent(share)}, the server ${percent(serverShare)}`,
    '',
    'Targets',
    judge('CPU share of the process', share * 100, { atMost: 3, unit: ' %' }),
    judge('lowest remaining of any lock', lowest, { atLeast: 5000, unit: ' ms' }, 0),
  ];
}
