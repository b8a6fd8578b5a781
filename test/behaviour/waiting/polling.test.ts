/** Waiting without messages: an ACL user who may not publish or subscribe. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { ROOT, run } from '../../support/child.js';
import { Contender, cutOff, quiet, untilQueued } from '../../support/crew.js';
import { problemsIn } from '../../support/history.js';
import { closeManagers, connect, holdfast } from '../../support/holdfast.js';
import { Ledger } from '../../support/ledger.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const server = serverOfFile();
const ledger = new Ledger(serverOfFile());
const crew: Contender[] = [];

afterEach(async () => {
  await closeManagers();
  await Promise.all(crew.splice(0).map((each) => each.stop()));
  await quiet(server);
  await ledger.clear();
});

/** Makes a user with all other rights; answers the URL of the server for that user. */
async function deafUser(...rules: string[]): Promise<string> {
  const all = ['reset', 'on', '>pw', '~*', '&*', '+@all', ...rules];
  await server.admin.call('ACL', 'SETUSER', 'deaf', ...all);
  return server.url.replace('//', '//deaf:pw@');
}

for (const rule of ['resetchannels', '-subscribe', '-publish']) {
  test(`a user with ${rule} waits and is granted, and is warned once`, async () => {
    const there = await connect(server.url);
    const here = await connect(await deafUser(rule), { clientName: 'here' });
    const warnings: unknown[] = [];
    here.on('warning', (warning) => warnings.push(warning));
    there.on('warning', (warning) => assert.fail(warning));

    // Longer than any pause between polls, so that a poll finds the lock free.
    const lease = { ttl: 20_000, wait: 60_000 };
    const first = await there.acquire('x', lease);
    const second = here.acquire('x', { ...lease, label: 'here' });
    await untilQueued(server, 'x', ['here']);
    const begin = performance.now();
    await first.release();
    const lock = await second;
    assert.ok(performance.now() - begin < 1_000, 'at the pace of a poll, not of a lease');
    const third = there.acquire('x', { ...lease, label: 'there' });
    await untilQueued(server, 'x', ['there']);
    assert.equal(await lock.release(), true);
    // No message reaches this one either: a poll finds the grant within the claim.
    assert.equal(await (await third).release(), true);

    let reconnected = false;
    here.once('reconnect', () => {
      reconnected = true;
    });
    await cutOff(server, 'here');
    await until(() => reconnected, 'the connection to be back');
    const last = await here.acquire('x');
    await last.release();
    assert.equal(warnings.length, 1, String(warnings));
    const [warning] = warnings as [Error & { code: string }];
    assert.ok(warning instanceof holdfast.LockError);
    assert.equal(warning.code, 'WARN_LOCK_POLLING');
    assert.match(warning.message, /poll.*&holdfast:\*/);
    assert.ok(!warning.message.includes('pw@'));
  });
}

test('without a listener it is a warning of the process', async () => {
  const url = await deafUser('resetchannels');
  const ended = await run(
    `import { connect } from 'holdfast';
    const locks = await connect(process.argv[1]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await locks.close();`,
    url,
  );
  assert.equal(ended.code, 0, `${ROOT}: ${ended.stderr}`);
  assert.match(ended.stderr, /\[WARN_LOCK_POLLING\] HoldfastWarning: waiters on .* poll/);
});

test('those who hear and those who do not: one holder at a time, and everybody has a turn', async () => {
  const deafUrl = await deafUser('resetchannels');
  crew.push(
    await Contender.start('deaf1', deafUrl, ledger),
    await Contender.start('deaf2', deafUrl, ledger),
    await Contender.start('hears1', server.url, ledger),
    await Contender.start('hears2', server.url, ledger),
  );
  const contest = { name: 'x', tasks: 2, rounds: 4, ttl: 600, wait: 60_000, stores: true };
  const tallies = await Promise.all(crew.map((each) => each.order('contend', contest)));
  assert.deepEqual(tallies, Array(4).fill({ ok: 8 }));
  assert.deepEqual(await problemsIn(ledger), []);
});
