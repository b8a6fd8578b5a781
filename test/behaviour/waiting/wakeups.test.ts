/** No waiter misses its grant, however often the connections for messages break. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Contender, quiet } from '../../support/crew.js';
import { problemsIn } from '../../support/history.js';
import { Ledger } from '../../support/ledger.js';
import { RedisServer } from '../../support/server.js';
import { sleep } from '../../support/wait.js';

let server: RedisServer;
let ledger: Ledger;
let crew: Contender[];

before(async () => {
  [server, ledger] = await Promise.all([RedisServer.start(), Ledger.start()]);
  crew = await Promise.all(
    ['p1', 'p2'].map((who) => Contender.start(who, server.url, ledger, { managers: 6 })),
  );
});

after(async () => {
  await Promise.all(crew.map((each) => each.stop()));
  await quiet(server);
  await Promise.all([server.stop(), ledger.stop()]);
});

test('thirteen thousand contended rounds while connections are killed all the time', async () => {
  // One lock with hand-offs inside of each manager, and one that always goes through the server.
  const request = { ttl: 20_000, wait: 60_000 };
  const rounds = Promise.all(
    crew.flatMap((each) => [
      each.order('contend', { name: 'inside', tasks: 3, rounds: 220, ...request }),
      each.order('contend', { name: 'between', tasks: 1, rounds: 440, ...request }),
    ]),
  );

  let over = false;
  let killed = 0;
  const killer = (async () => {
    while (!over) {
      const type = Math.random() < 0.3 ? 'normal' : 'pubsub';
      const kill = server.admin.call('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes');
      killed += Number(await kill);
      await sleep(5 + Math.random() * 60);
    }
  })();
  const tallies = await rounds;
  over = true;
  await killer;

  const inside = { ok: 6 * 3 * 220 };
  const between = { ok: 6 * 440 };
  assert.deepEqual(tallies, [inside, between, inside, between]);
  assert.ok(killed > 500, `${killed} connections were killed`);
  assert.deepEqual(await problemsIn(ledger, { noLosses: true }), []);
  assert.equal((await ledger.holds()).length, 12 * (3 * 220 + 440));
});
