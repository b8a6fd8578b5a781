/** A thread of a process, see `client.ts`, that may be terminated at any moment. */

import { parentPort, workerData } from 'node:worker_threads';
import { openOperations } from '../../support/holdfast.js';
import { Roamer, type Setup } from './roamer.js';

async function main(): Promise<void> {
  const roamer = await Roamer.open(workerData as Setup);
  parentPort?.on('message', (order: 'calm' | 'halt') => roamer[order]());
  await roamer.run();
  await roamer.close();
  parentPort?.postMessage(openOperations());
  // A listener would keep the thread alive, which nothing else may do.
  parentPort?.close();
}

void main();
