/** The command line at a terminal: a table that is drawn in place, colours, questions, Ctrl-C. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { folderOf } from '../migrate/support.js';
import { environment, MAIN } from './support.js';
import { Terminal } from './terminal.js';

const server = serverOfFile();
let locks: LockManager;
let terminal: Terminal;

beforeEach(async () => {
  locks = await connect(server.url);
  terminal = new Terminal(environment(server));
  await terminal.shows(/^\$/m);
});

afterEach(async () => {
  terminal.close();
  await locks.close();
  await server.admin.flushall();
});

test('watch draws in place and follows', async () => {
  let lock = await locks.acquire('job', { label: 'web-1' });
  terminal.holdfast('watch', '--interval', '20ms');
  await terminal.shows(
    /^NAME +MODE +HOLDER +FENCE +HELD +LEASE +WAITING +CHANGES +WAITED +WAITERS\njob +exclusive +web-1 +≤ \S+s +\S+s +0$/m,
  );
  assert.deepEqual([terminal.state('alternate_on'), terminal.state('cursor_flag')], ['1', '0']);
  const [title, , heads] = terminal.screen(true).split('\n');
  assert.deepEqual([title?.includes('\x1b[1m'), heads?.startsWith('\x1b[1mNAME')], [false, true]);
  for (const changes of [1, 2]) {
    await lock.release();
    lock = await locks.acquire('job', { label: `web-${changes + 1}` });
    await terminal.shows(new RegExp(`^job .*web-${changes + 1} +\\d\\S*s .* ${changes}$`, 'm'));
  }
  await lock.release();
  await until(() => !terminal.screen().includes('job'), 'the lock to go');
  assert.equal(terminal.screen().match(/^NAME/gm)?.length, 1, 'one table');
});

test('watch --sort age shows first what is held longest', async () => {
  terminal.holdfast('watch', '--interval', '20ms', '--sort', 'age');
  await terminal.shows(/^NAME/m);
  await locks.acquire('b');
  await terminal.shows(/^b /m);
  await locks.acquire('a');
  await terminal.shows(/^b .*\na /m);
});

test('run says for whom it waits, and since when', async () => {
  const first = await locks.acquire('job', { label: 'web-1' });
  terminal.resize(200, 30);
  terminal.holdfast('run', 'job', '--', 'echo', 'done');
  const time = '\\d\\d:\\d\\d:\\d\\d';
  const said = (who: string) =>
    new RegExp(
      `waiting since ${time} for lock "job", at position 1: held, exclusive, by ${who} lease`.replaceAll(
        ' ',
        '\\s+',
      ),
    );
  await terminal.shows(said(`web-1 \\(since ${time} or later,`));
  assert.doesNotMatch(terminal.screen(), /;/, 'its holder lives, so there is no advice');
  await first.release();
  await terminal.shows(/^done$/m);
});

test('lead says who leads in its place after it has lost the lead', async () => {
  terminal.resize(200, 30);
  terminal.holdfast('lead', 'job', '--', 'sleep', '1000');
  await terminal.shows(/leads "job" with fence/);
  const next = locks.acquire('leader:job', { label: 'web-2', wait: 60_000 });
  await until(async () => (await locks.query()).pending.length === 1, 'the next in the queue');
  assert.equal(await locks.forceRelease('leader:job'), true);
  await next;
  await terminal.shows(/waiting since \S+ for lock "leader:job"[\s\S]* by web-2 /);
});

test('migrate counts the files on a terminal while it reads them, and clears the line', async () => {
  const FILES = 400;
  const text = `${"const taken = await redis.set('lock:a', me, 'NX', 'PX', 9);\n".repeat(20)}if (taken) run();\n`;
  const names = Array.from({ length: FILES }, (_, i) => [`${i}.js`, text]);
  const folder = folderOf(Object.fromEntries(names));
  const log = join(server.folder, 'terminal');
  terminal.record(log);
  terminal.line(`cd ${folder}`);
  terminal.holdfast('migrate', '>', `${server.folder}/report`);
  terminal.line('echo end');
  await terminal.shows(/^(\$ )?end$/m);
  const written = readFileSync(log, 'utf8').replaceAll('\r\x1b[K', '<clear>');
  const counts = [...written.matchAll(/<clear>(\d+) of 400 files/g)].map(([, done]) =>
    Number(done),
  );
  assert.ok(counts.length > 0 && counts.length < FILES / 2, `${counts}`);
  assert.deepEqual(
    counts,
    [...new Set(counts)].sort((a, b) => a - b),
  );
  // On a busy machine none may have been read after the first tenth of a second.
  assert.ok(counts.every((done) => done < FILES));
  assert.match(written.slice(written.lastIndexOf(' files')), /^ files<clear>(?!\d)/);
});

for (const key of ['q', 'C-c']) {
  test(`watch ends with ${key} and leaves the terminal as it was`, async () => {
    terminal.line(`stty -a > ${server.folder}/stty; echo before`);
    await terminal.shows(/^before$/m);
    terminal.holdfast('watch');
    await terminal.shows(/^NAME/m);
    terminal.key(key);
    await terminal.shows(/^before$/m);
    assert.deepEqual([terminal.state('alternate_on'), terminal.state('cursor_flag')], ['0', '1']);
    terminal.line(`echo code $?; stty -a | cmp - ${server.folder}/stty && echo same`);
    await terminal.shows(/^(\$ )?code 0\nsame$/m);
  });
}

test('watch gives the terminal back when it is ended by a signal', async () => {
  terminal.line(
    `sh -c 'echo $$ > ${server.folder}/pid; exec "$0" "$@"' ${process.execPath} ${MAIN} watch`,
  );
  await terminal.shows(/^NAME/m);
  process.kill(Number(readFileSync(join(server.folder, 'pid'), 'utf8')), 'SIGTERM');
  await until(() => terminal.state('alternate_on') === '0', 'the terminal to be given back');
  assert.equal(terminal.state('cursor_flag'), '1');
});

test('watch fits the terminal, also when it is resized', async () => {
  for (let i = 0; i < 40; i++) await locks.acquire(`job:${String(i).padStart(2, '0')}`);
  terminal.holdfast('watch', '--interval', '1h');
  await terminal.shows(/^job:25 .*\n… and 14 more\n?$/m);
  terminal.resize(40, 10);
  await terminal.shows(/^job:05 .*\n… and 34 more\n?$/m);
  assert.ok(
    terminal
      .screen()
      .split('\n')
      .every((line) => line.length <= 40),
  );
});

test('colours are for terminals, and not with NO_COLOR', async () => {
  const bold = '\x1b[1mNAME';
  await locks.acquire('job');
  terminal.holdfast('ls');
  await terminal.shows(/^NAME/m);
  assert.ok(terminal.screen(true).includes(bold));
  const plainly = async (...more: string[]) => {
    await terminal.clear();
    terminal.holdfast('ls', ...more);
    await terminal.shows(/^NAME/m);
    assert.ok(!terminal.screen(true).includes(bold));
  };
  await plainly('|', 'cat');
  terminal.line('export NO_COLOR=1');
  await plainly();
});

/** The coloured words in the line of a lock, by the codes of their colours. */
function coloursOf(screen: string, name: string): string[][] {
  const line = screen.split('\n').find((each) => each.startsWith(`${name} `)) ?? '';
  return line.split('\x1b[').flatMap((part) => {
    const [, code, word] = /^(2|3[1-7])m(.*\S)/.exec(part) ?? [];
    return code === undefined || word === undefined ? [] : [[code, word]];
  });
}

test('ls colours a queue, a lease without an end and a slot that is done, but no candidates', async () => {
  terminal.resize(160, 30);
  const LONG = { ttl: 600_000, label: 'web-1' };
  for (const name of ['endless', 'wanted', 'leader:x']) await locks.acquire(name, LONG);
  // The name of a holder is no mode.
  await locks.acquire('calm', { ...LONG, label: 'done' });
  await server.admin.persist('lock:endless');
  for (const name of ['wanted', 'leader:x'])
    void locks.acquire(name, { ...LONG, wait: 600_000 }).catch(() => {});
  await until(async () => (await locks.query()).pending.length === 2, 'two waiters');
  await locks.runOnce('bill', { slot: 'may', keep: '1h', label: 'web-1' }, () => {});
  terminal.holdfast('ls');
  await terminal.shows(/^wanted [\s\S]*\n\$/m);
  const screen = terminal.screen(true);
  const [waiting, waited, ...more] = coloursOf(screen, 'wanted');
  assert.deepEqual([waiting, waited?.[0], more], [['33', '1'], '33', []]);
  assert.match(waited?.[1] ?? '', /^\d\S*s$/);
  for (const name of ['calm', 'leader:x']) assert.deepEqual(coloursOf(screen, name), []);
  assert.deepEqual(coloursOf(screen, 'once:bill@may'), [['32', 'done']]);
  assert.deepEqual(coloursOf(screen, 'endless'), [['33', 'no end']]);
});

test('release asks, and does nothing unless the answer is yes', async () => {
  await locks.acquire('job', { label: 'web-1' });
  const question =
    /Lock "job" on redis:\S+ is held, exclusive, by web-1 \(lease \S+\)\. Release it\? \[y\/N\]/;
  for (const answer of ['n', '', 'yes sir']) {
    await terminal.clear();
    terminal.holdfast('release', 'job');
    await terminal.shows(question);
    terminal.line(answer);
    await terminal.shows(/^Nothing was done\.$/m);
  }
  await terminal.clear();
  terminal.holdfast('release', 'job');
  await terminal.shows(question);
  terminal.key('C-c');
  await terminal.shows(/^Nothing was done\.$/m);
  assert.equal((await locks.query()).held.length, 1);
  await terminal.clear();
  terminal.holdfast('release', 'job');
  await terminal.shows(question);
  terminal.line('y');
  await terminal.shows(/^Lock "job" was released\.$/m);
  assert.equal((await locks.query()).held.length, 0);
});

test('release of a slot that is done says that its job may run again', async () => {
  await locks.runOnce('bill', { slot: 'may', keep: '1h', label: 'web-1' }, () => {});
  terminal.holdfast('release', 'once:bill@may');
  await terminal.shows(/marks a slot as done, by web-1.+its job may run again.+\[y\/N\]/s);
  terminal.line('y');
  await terminal.shows(/^Lock "once:bill@may" marks no slot as done any more\.$/m);
  assert.equal((await locks.query()).held.length, 0);
});

test('release asks about one holder, and takes the lock from no later one', async () => {
  terminal.resize(200, 30);
  const lock = await locks.acquire('job', { label: 'web-1' });
  terminal.holdfast('release', 'job');
  await terminal.shows(/is held, exclusive, by web-1/);
  await lock.release();
  const next = await locks.acquire('job', { label: 'web-2' });
  terminal.line('y');
  await terminal.shows(/^Lock "job" is not held by the same any more: nothing was done\.$/m);
  assert.equal(next.held && (await locks.query()).held.length, 1);
  await next.release();
  // The same where other code held it.
  await server.admin.set('lock:job', 'theirs');
  await terminal.clear();
  terminal.holdfast('release', 'job', '--foreign');
  await terminal.shows(/is held by other code without an end to its lease\. Release it\?/);
  await server.admin.del('lock:job');
  const own = await locks.acquire('job');
  terminal.line('y');
  await terminal.shows(/not held by the same any more: nothing was done/);
  assert.equal(own.held, true);
  await own.release();
  await server.admin.set('lock:job', 'theirs');
  await terminal.clear();
  terminal.holdfast('release', 'job', '--foreign');
  await terminal.shows(/Release it\?/);
  terminal.line('y');
  await terminal.shows(/^Lock "job" was released\.$/m);
  assert.equal(await server.admin.exists('lock:job'), 0);
});

test('a command at a terminal has the terminal, and Ctrl-C reaches it once', async () => {
  const script = `'trap "echo told" INT; read line </dev/tty; echo got $line; while :; do sleep 0.02; done'`;
  terminal.holdfast('run', 'job', '--', 'sh', '-c', script);
  await until(async () => (await locks.query()).held.length === 1, 'the lock');
  terminal.line('hello');
  await terminal.shows(/^got hello$/m);
  terminal.key('C-c');
  await terminal.shows(/^(\^C)?told$/m);
  assert.equal(terminal.screen().match(/^(\^C)?told$/gm)?.length, 1);
  assert.equal((await locks.query()).held.length, 1, 'it runs on, under the lock');
  assert.equal(await locks.forceRelease('job'), true);
  await terminal.shows(/holdfast: lock "job" is not held any more/);
});

test('a command at a terminal that ignores SIGTERM is killed when the lock is lost', async () => {
  const script = `'trap "" TERM; echo in; while :; do sleep 0.02; done'`;
  terminal.holdfast('run', 'job', '--grace', '200ms', '--', 'sh', '-c', script);
  await terminal.shows(/^in$/m);
  assert.equal(await locks.forceRelease('job'), true);
  await terminal.shows(/holdfast: lock "job" is not held any more/);
  terminal.line('echo code $?');
  await terminal.shows(/^(\$ )?code 76$/m);
});

test('Ctrl-Z does not stop the renewal alone, where the command has its input from elsewhere', async () => {
  const own = `${process.execPath} ${MAIN} run job --ttl 500ms`;
  terminal.line(`(sleep 1000) | ${own} -- sh -c 'echo started; sleep 1000'`);
  await terminal.shows(/^started$/m);
  terminal.key('C-z');
  await terminal.shows(/\^Z/);
  // A waiter that waits for three leases does not get it.
  assert.equal(await locks.acquire('job', { wait: 1_500 }).catch(() => null), null);
  assert.equal(await locks.forceRelease('job'), true);
  await terminal.shows(/holdfast: lock "job" is not held any more/);
});
