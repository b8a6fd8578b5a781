// What the demo and the benchmark need to start a server of their own.

import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';

/** `HOLDFAST_REDIS_SERVER`, or a Redis or Valkey on PATH; if there is none, an error with `help`. */
export function serverBinary(env, help) {
  const named = env.HOLDFAST_REDIS_SERVER;
  if (named) {
    if (existsSync(named)) return named;
    throw new Error(`HOLDFAST_REDIS_SERVER names no file: ${named}\n\n${help}`);
  }
  const folders = (env.PATH ?? '').split(delimiter).filter((folder) => folder !== '');
  const found = ['redis-server', 'valkey-server']
    .flatMap((name) => folders.map((folder) => join(folder, name)))
    .find((file) => existsSync(file));
  if (found === undefined) {
    throw new Error(`No redis-server and no valkey-server on PATH.\n\n${help}`);
  }
  return found;
}

/** A port of the loopback interface that nobody listened on a moment ago. */
export async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}
