/** A program that loads the package anew, uses each copy and drops it, as a development server does. */

import { setTimeout as sleep } from 'node:timers/promises';
import type * as Holdfast from 'holdfast';

const COPIES = 20;
const refs: WeakRef<object>[] = [];

function loaded(): typeof Holdfast {
  for (const path of Object.keys(require.cache)) {
    if (!path.endsWith('.node')) delete require.cache[path];
  }
  // A module keeps what it has required.
  module.children.length = 0;
  return require('holdfast') as typeof Holdfast;
}

async function use(): Promise<void> {
  const { connect } = loaded();
  refs.push(new WeakRef(connect));
  const locks = await connect('memory:');
  await locks.request('page', async () => {});
}

function alive(): number {
  return refs.filter((ref) => ref.deref() !== undefined).length;
}

async function main(): Promise<void> {
  for (let i = 0; i < COPIES; i++) await use();
  // The first copy and the last are in use.
  for (let i = 0; i < 100 && alive() > 2; i++) {
    // What was looked at is not collected before the next turn.
    await sleep(10);
    globalThis.gc?.();
  }
  const [one, two] = [loaded(), loaded()];
  const [a, b] = [await one.connect('memory:shop'), await two.connect('memory:shop')];
  const lock = await a.acquire('x');
  const waits = b.acquire('x');
  await lock.release();
  const other = await waits;
  const works = one.connect !== two.connect && other.fence > lock.fence;
  console.log(JSON.stringify({ listeners: process.listenerCount('exit'), alive: alive(), works }));
}

void main();
