/** The services in Fastify and Express: who disconnects leaves, and a deploy ends no request. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { Program } from './program.js';

let locks: LockManager;

const server = serverOfFile({}, async () => {
  locks = await connect(server.url);
});

async function start(framework: string, steps = 3): Promise<{ program: Program; url: string }> {
  const env = { REDIS_URL: server.url, PORT: '0', STEPS: `${steps}` };
  const program = new Program(`${framework}/service.mjs`, env);
  await program.says(/^http/);
  return { program, url: `${program.lines[0]}/reports/${framework}` };
}

const waiters = async () => (await locks.query()).pending.length;

for (const framework of ['fastify', 'express']) {
  test(`${framework}: a client that disconnects leaves the queue, or ends its work`, async () => {
    const { program, url } = await start(framework, 1_000_000);
    const [working, waiting] = [new AbortController(), new AbortController()];
    const ask = (signal: AbortSignal) => fetch(url, { method: 'POST', signal }).catch(() => null);
    const first = ask(working.signal);
    await program.says(/^building/);
    const second = ask(waiting.signal);
    await until(async () => (await waiters()) === 1, 'the second to wait');
    waiting.abort();
    await until(async () => (await waiters()) === 0, 'the second to leave the queue');
    working.abort();
    // Its work would have lasted for hours.
    await (await locks.acquire(`report:${framework}`)).release();
    assert.deepEqual([await first, await second], [null, null]);
    assert.ok(!program.lines.some((line) => line.startsWith('built')));
    program.kill('SIGTERM');
    assert.equal(await program.ended(), 0, program.lines.join('\n'));
  });

  test(`${framework}: a deploy answers what has begun, and leaves no lock behind`, async () => {
    const old = await start(framework, 30);
    const answer = fetch(old.url, { method: 'POST' });
    await old.program.says(/^building/);
    old.program.kill('SIGTERM');
    const next = await start(framework);
    const after = fetch(next.url, { method: 'POST' });
    const [early, later] = await Promise.all([answer, after]);
    assert.deepEqual([early.status, later.status], [200, 200]);
    const fences = await Promise.all(
      [early, later].map(async (each) => ((await each.json()) as { fence: number }).fence),
    );
    assert.ok((fences[0] ?? 0) < (fences[1] ?? 0));
    assert.equal(await old.program.ended(), 0, old.program.lines.join('\n'));
    next.program.kill('SIGTERM');
    assert.equal(await next.program.ended(), 0, next.program.lines.join('\n'));
    assert.equal((await locks.query()).held.length, 0);
  });
}
