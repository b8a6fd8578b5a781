/** A process that stops itself between the grant of its first lock and the first line under it: see `stop`. */

import { tracingChannel } from 'node:diagnostics_channel';
import { writeSync } from 'node:fs';
import { join } from 'node:path';
import { type Place, Scene } from './scene.js';
import type { Adapter, Stopped } from './weather.js';

const [, , file = '', name = '', place = ''] = process.argv;

/** The process has been told of the grant, and its caller has not. */
function stopAtFirstGrant(): void {
  let isFirst = true;
  tracingChannel('holdfast:acquire').asyncEnd.subscribe((message) => {
    if ((message as { outcome?: string }).outcome !== 'acquired' || !isFirst) return;
    isFirst = false;
    writeSync(1, 'granted\n');
    process.kill(process.pid, 'SIGSTOP');
  });
}

async function main(): Promise<void> {
  const { adapters } = require(join(__dirname, `${file}.js`)) as { adapters: readonly Adapter[] };
  const { cells } = adapters.find((each) => each.name === name) ?? fail(`no adapter ${name}`);
  const scene = new Scene(JSON.parse(place) as Place);
  stopAtFirstGrant();
  const returned = await (cells.stopped as Stopped).first(scene);
  writeSync(1, `returned ${JSON.stringify(returned ?? null)}\n`);
  process.exit(0);
}

function fail(message: string): never {
  throw new Error(message);
}

void main();
