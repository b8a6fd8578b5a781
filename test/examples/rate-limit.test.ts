/** Several processes share an API that takes three calls at a time, and three in a while. */

import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';
import { Program } from './program.js';

const LIMIT = 3;
const PROCESSES = 3;
const CALLS = 5;

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

/** An API that answers when it is told to. */
class Api {
  /** Who waits for an answer. */
  readonly open: ServerResponse[] = [];
  /** The most that waited at a time. */
  most = 0;
  readonly #server = createServer((_request, response) => {
    this.open.push(response);
    this.most = Math.max(this.most, this.open.length);
    if (this.atOnce) this.answer();
  });

  constructor(readonly atOnce: boolean) {}

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  answer(): void {
    this.open.shift()?.end();
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

function start(url: string, perMs: number): Program[] {
  const env = { REDIS_URL: server.url, API_URL: url, CALLS: `${CALLS}`, PER_MS: `${perMs}` };
  return Array.from({ length: PROCESSES }, () => new Program('rate-limit/caller.mjs', env));
}

async function assertAllAnswered(programs: readonly Program[]): Promise<void> {
  const codes = await Promise.all(programs.map((program) => program.ended()));
  assert.deepEqual(codes, [0, 0, 0], programs.flatMap(({ lines }) => lines).join('\n'));
  for (const { lines } of programs) assert.deepEqual(lines, [`${CALLS} answers`]);
}

test('of three processes at most three calls are under way, and always three', async () => {
  const api = new Api(false);
  const programs = start(await api.listen(), 0);
  for (let left = PROCESSES * CALLS; left > 0; left--) {
    // As many as may: a permit that were lost would be missed here.
    await until(() => api.open.length === Math.min(LIMIT, left), `${left} calls to go on`);
    api.answer();
  }
  await assertAllAnswered(programs);
  assert.equal(api.most, LIMIT);
  api.close();
});

test('at most three begin in a while, however quick the answers are', async () => {
  const perMs = 200;
  const api = new Api(true);
  const begun = performance.now();
  await assertAllAnswered(start(await api.listen(), perMs));
  const rounds = (PROCESSES * CALLS) / LIMIT;
  assert.ok(performance.now() - begun >= (rounds - 1) * perMs);
  assert.ok(api.most <= LIMIT);
  api.close();
});
