/**
 * A process that holds a lock for each store: it says so, and at each line that it reads it writes a number to all
 * stores, and tells what came of it.
 */

import { createInterface } from 'node:readline';
import { connect } from '../support/holdfast.js';
import { type Kind, OPEN, type Places } from './stores.js';

async function main(): Promise<void> {
  const { redis, kinds, places } = JSON.parse(process.argv[2] ?? '') as {
    redis: string;
    kinds: Kind[];
    places: Places;
  };
  const locks = await connect(redis, { ttl: 500 });
  const stores = await Promise.all(
    kinds.map(async (kind) => ({ kind, store: await OPEN[kind](places) })),
  );
  const held = await Promise.all(stores.map(({ kind }) => locks.acquire(kind)));
  console.log('holds');
  for await (const line of createInterface(process.stdin)) {
    const fates: Record<string, string> = {};
    for (const [index, { kind, store }] of stores.entries()) {
      const lock = held[index];
      if (lock === undefined) continue;
      fates[kind] = await store.write(lock, Number(line)).then(
        () => 'written',
        (error) => error.code ?? String(error),
      );
    }
    console.log(JSON.stringify(fates));
  }
  await Promise.all(stores.map(({ store }) => store.close()));
  await locks.close();
}

void main();
