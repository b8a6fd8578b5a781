// Helpers with which the demo and the benchmark start a server of their own.

import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';

/** `HOLDFAST_REDIS_SERVER`, or a Redis or Valkey on PATH; `undefined` if there is none. */
export function findServerBinary(env) {
  const named = env.HOLDFAST_REDIS_SERVER;
  if (named) {
    if (existsSync(named)) return named;
    throw new Error(`HOLDFAST_REDIS_SERVER names no file: ${named}`);
  }
  const folders = (env.PATH ?? '').split(delimiter).filter((folder) => folder !== '');
  return ['redis-server', 'valkey-server']
    .flatMap((name) => folders.map((folder) => join(folder, name)))
    .find((file) => existsSync(file));
}

/** A port of the loopback interface without a listener. */
export async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}
