/** A server that starts later than the service. */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { LockConnectionError, LockServerError } from 'holdfast';
import { run } from '../support/child.js';
import { connect, openOperations } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { sleep } from '../support/wait.js';

/** A server that is not up yet. */
async function lateServer(t: TestContext, options: object = {}): Promise<RedisServer> {
  const server = await RedisServer.start(options);
  t.after(() => server.stop());
  await server.kill();
  return server;
}

test('connect waits for a server that starts later, if it is told to', async (t) => {
  const server = await lateServer(t);
  const connecting = connect(server.url, { waitForServer: '20s' });
  await sleep(300);
  await server.start();
  const locks = await connecting;
  await locks.request('a', async () => {});
  await locks.close();
  assert.equal(openOperations(), 0);
});

test('connect rejects when the time is over, and at once without the option, which its error names', async (t) => {
  const server = await lateServer(t);
  const began = performance.now();
  await assert.rejects(connect(server.url, { waitForServer: 200 }), LockConnectionError);
  assert.ok(performance.now() - began >= 199, 'the last attempt begins as the time ends');
  await assert.rejects(connect(server.url), {
    name: 'LockConnectionError',
    message:
      /cannot connect to redis:.*refused.*if it starts later, connect waits for it with the option waitForServer/,
  });
  assert.equal(openOperations(), 0);
});

test('the error of a target that was not given says so', async (t) => {
  const { stdout } = await run(`
    import { connect } from 'holdfast';
    delete process.env.HOLDFAST_URL;
    delete process.env.REDIS_URL;
    const locks = await connect(undefined).catch(({ message }) => console.log(message));
    await locks?.close();
  `);
  if (stdout === '') return t.skip('a server has the default port of Redis');
  assert.match(stdout, /connect got no target, or undefined, and neither HOLDFAST_URL nor/);
});

test('a password that a function gives is tried again: it may be changing', async (t) => {
  const server = await RedisServer.start({ password: 'new' });
  t.after(() => server.stop());
  let asked = 0;
  const password = () => {
    asked += 1;
    return asked > 16 ? 'new' : 'old';
  };
  // Of pauses that grow without end, so many do not fit.
  await (await connect(server.url, { password, waitForServer: '10s' })).close();
  asked = 0;
  await assert.rejects(connect(server.url, { password }), { serverCode: 'WRONGPASS' });
});

test('connect does not wait for a server that refuses the login', async (t) => {
  const server = await RedisServer.start({ password: 'secret' });
  t.after(() => server.stop());
  const waitForServer = Number.POSITIVE_INFINITY;
  await assert.rejects(connect(server.url, { password: 'wrong', waitForServer }), LockServerError);
  await assert.rejects(connect(server.url, { waitForServer: -1 }), /waitForServer/);
});

test('no other refusal than that of the password is tried again', {
  timeout: 20_000,
}, async (t) => {
  const server = await RedisServer.start();
  t.after(() => server.stop());
  await server.admin.call('ACL', 'SETUSER', 'app', 'on', '>p');
  let asked = 0;
  const password = () => {
    asked += 1;
    return 'p';
  };
  const options = { username: 'app', password, waitForServer: Number.POSITIVE_INFINITY };
  await assert.rejects(connect(server.url, options), { serverCode: 'NOPERM' });
  assert.ok(asked <= 2, `${asked}`);
});
