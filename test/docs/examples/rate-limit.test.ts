/** Several processes share an API that takes three calls at a time, and three in a while. */

import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { Program } from './program.js';

const LIMIT = 3;
const PROCESSES = 3;
const CALLS = 8;
const ALL = PROCESSES * CALLS;

const server = serverOfFile();

/** An API that answers when it is told to. */
class Api {
  /** Who waits for an answer. */
  readonly open: ServerResponse[] = [];
  /** The most that waited at a time. */
  most = 0;
  /** When each call came, in ms. */
  readonly calls: number[] = [];
  readonly #server = createServer((_request, response) => {
    this.calls.push(performance.now());
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

test('of three processes at most three calls are under way, and always three', async (t) => {
  const api = new Api(false);
  t.after(() => api.close());
  const programs = start(await api.listen(), 0);
  for (let left = ALL; left > 0; left--) {
    // As many as may: a permit that were lost would be missed here.
    await until(() => api.open.length === Math.min(LIMIT, left), `${left} calls to go on`);
    api.answer();
  }
  await assertAllAnswered(programs);
  assert.equal(api.most, LIMIT);
});

test('at most three begin in a while, however quick the answers are', async (t) => {
  const perMs = 400;
  const api = new Api(true);
  t.after(() => api.close());
  await assertAllAnswered(start(await api.listen(), perMs));
  const rounds = ALL / LIMIT;
  // A call comes a little after its permit, the first ones most of all.
  const least = ((rounds - 1) * perMs * 2) / 3;
  const [first = 0, last = 0] = [api.calls[0], api.calls.at(-1)];
  assert.equal(api.calls.length, ALL);
  assert.ok(last - first >= least, `${ALL} calls came within ${last - first} ms`);
  assert.ok(api.most <= LIMIT);
});
