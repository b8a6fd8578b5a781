/** `lead` and `holdfast lead`: docs/lead.md. */

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { ended, ROOT } from '../support/child.js';
import type { LockManager } from '../support/holdfast.js';
import { type Caller, OF_COMMANDS } from './cli.js';
import type { Feature, Promised, Scene } from './feature.js';
import { openManager } from './holding.js';

/** Nobody begins a term while another has one; a process that was stopped or killed does not end its own. */
const oneAtATime: Promised<unknown> = ({ fault, effects }) => {
  let leader = '';
  return effects.every((effect) => {
    const [what, who = ''] = effect.split(' ');
    if (what === 'had') leader = leader === who ? '' : leader;
    if (what !== 'has') return true;
    const alone = leader === '' || fault.startsWith('process');
    leader = who;
    return alone;
  });
};

const PROMISES: Readonly<Record<string, Promised<unknown>>> = {
  'a call ends': ({ first, second, again }) =>
    [first, second, again].every(({ error }) => error?.name !== 'Never'),
  'who comes later leads': ({ second, again, effects }) =>
    [second, again].every(({ error }) => error === undefined) &&
    ['has second', 'has again'].every((effect) => effects.includes(effect)),
  'two never lead at once': oneAtATime,
  'who has resigned leaves nothing behind': ({ store }) =>
    Object.keys(store).every((key) => /:(queue|waiting|waiters)$/.test(key)),
};

/** Leads once, and resigns when its term has done its work, or is lost: then it is elected again. */
async function leadOnce(locks: LockManager, scene: Scene): Promise<string> {
  const stop = new AbortController();
  // The first of the callers may never get an answer again.
  if (scene.who === 'first') setTimeout(() => stop.abort(), scene.wait).unref();
  let worked = false;
  await locks.lead(scene.name, { ttl: scene.ttl, signal: stop.signal }, async ({ lock }) => {
    if (!lock.held) return;
    scene.note(`has ${scene.who}`);
    // A term takes its time: here the turns in which the answers of others come.
    await new Promise((resolve) => setImmediate(resolve));
    scene.note(`had ${scene.who}`);
    worked = true;
    stop.abort();
  });
  return worked ? 'led' : 'did not lead';
}

const lead: Feature<LockManager> = {
  name: 'lead',
  page: 'docs/lead.md',
  memory: true,
  open: openManager,
  close: (locks) => locks.close(),
  first: leadOnce,
  second: leadOnce,
  promises: {
    ...PROMISES,
    'a call that ends without an error has led, or was told to stop': ({ first, effects }) =>
      first.value !== 'led' || effects.includes('had first'),
  },
};

const MAIN = join(ROOT, 'dist', 'operators', 'cli', 'main.js');

/** Runs a command that writes its effects into the ledger, and has its parent end. */
async function run(caller: Caller, scene: Scene): Promise<unknown> {
  const script = `echo has ${scene.who} >> "$0"; echo had ${scene.who} >> "$0"; kill -TERM $PPID; sleep 60`;
  const words = ['lead', scene.name, '--ttl', `${scene.ttl}ms`, '--', 'sh', '-c', script];
  const env = { ...process.env, HOLDFAST_URL: scene.url };
  const child = spawn(process.execPath, [MAIN, ...words, scene.ledger], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const kill = () => void child.kill('SIGKILL');
  process.once('exit', kill);
  // It waits for as long as it takes.
  const impatience = setTimeout(() => child.kill('SIGTERM'), scene.wait);
  caller.child = child;
  scene.runsIn(child.pid ?? 0);
  const { code, signal } = await ended(child);
  clearTimeout(impatience);
  process.off('exit', kill);
  return { code, signal };
}

const cli: Feature<Caller> = {
  ...OF_COMMANDS,
  name: 'holdfast lead',
  page: 'docs/cli.md, lead',
  first: run,
  second: ({ locks }, scene) => leadOnce(locks as LockManager, scene),
  promises: PROMISES,
};

export const features: readonly Feature[] = [lead, cli];
