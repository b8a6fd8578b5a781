/** The page of `holdfast ui` in a browser. */

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import type { Browser, Locator, Page } from 'playwright-core';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { environment, Running } from '../cli/support.js';
import { startBrowser } from './browser.js';
import { findingsOf } from './checker.js';
import { serve, telling } from './scene.js';

const LONG = { ttl: 600_000, wait: 60_000 };

let server: RedisServer;
let browser: Browser;
let locks: LockManager;
let others: LockManager;
/** The page that only shows, and the one that may release. */
let shows: Running;
let releases: Running;
let page: Page;
let complaints: string[];

before(async () => {
  server = await RedisServer.start();
  browser = await startBrowser();
  const args = ['ui', '--interval', '100ms', '--json'];
  shows = new Running(args, environment(server));
  releases = new Running([...args, '--allow-release'], environment(server));
  await Promise.all([shows.says('"url"'), releases.says('"url"')]);
});

after(async () => {
  for (const running of [shows, releases]) running?.child.kill('SIGTERM');
  const ended = await Promise.all([shows?.ended, releases?.ended]);
  await browser?.close();
  await server.stop();
  assert.deepEqual(
    ended.map((each) => each?.code),
    [0, 0],
  );
});

beforeEach(async () => {
  locks = await connect(server.url, { label: 'web-1' });
  others = await connect(server.url, { label: 'web-2' });
  complaints = [];
});

afterEach(async () => {
  await page.context().close();
  await Promise.all([locks.close(), others.close()]);
  await server.admin.flushall();
  assert.deepEqual(complaints, [], 'the browser has nothing to complain of');
});

async function open(running: Running | string = shows, width = 1600) {
  const context = await browser.newContext({ viewport: { width, height: 900 } });
  page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.goto(typeof running === 'string' ? running : JSON.parse(running.stdout).url);
  await page.locator('#state[data-state=live]').waitFor();
}

const row = (name: string) => page.locator(`#rows tr[data-name="${name}"]`);
const textOf = async (place: Locator) => ((await place.textContent()) ?? '').trim();
/** What a cell of a row says; '' for one that is empty. */
const cell = async (name: string, column: string) => textOf(row(name).locator(`.c-${column}`));
/** Waits until a cell says something. */
const says = (name: string, column: string, text: string | RegExp) =>
  until(async () => {
    const now = (await row(name).count()) === 0 ? '' : await cell(name, column);
    return typeof text === 'string' ? now === text : text.test(now);
  }, `${column} of ${name} to be ${text}`);
const happened = (name: string) =>
  page.locator('#happened li').filter({ has: page.getByRole('button', { name, exact: true }) });
const names = () =>
  page
    .locator('#rows tr[data-name]')
    .evaluateAll((rows) => rows.map((each) => each.getAttribute('data-name')));

async function enqueue(manager: LockManager, name: string): Promise<void> {
  const before = (await locks.query({ name })).pending.length;
  manager.acquire(name, LONG).catch(() => {});
  await until(async () => (await locks.query({ name })).pending.length > before, 'a queue entry');
}

test('it shows who holds what, who waits and for how long, and follows', async () => {
  const lock = await locks.acquire('stock:1', LONG);
  const SHARE = { ...LONG, mode: 'shared' } as const;
  const first = await others.acquire('api', SHARE);
  const share = await locks.acquire('api', SHARE);
  await first.release();
  const second = await others.acquire('api', SHARE);
  await enqueue(others, 'stock:1');
  await open();
  assert.ok(!page.url().includes('token'), 'the token has left the address line');
  await says('stock:1', 'waiting', '1');
  assert.equal(await cell('stock:1', 'kind'), 'exclusive');
  assert.equal(await cell('stock:1', 'holder'), 'web-1');
  assert.equal(await cell('stock:1', 'fence'), '');
  assert.match(await cell('stock:1', 'held'), /^≤ \d+(\.\d)?m?s$/);
  assert.match(await cell('stock:1', 'longest'), /^\d+(\.\d)?m?s$/);
  assert.match(await cell('stock:1', 'lease'), /^(9m\d\ds|10m00s)$/);
  assert.equal(await cell('api', 'kind'), 'shared');
  assert.match(await cell('api', 'holder'), /^web-[12] \+1$/);
  assert.ok([share.fence, second.fence].map(String).includes(await cell('api', 'fence')));
  await lock.release();
  await says('stock:1', 'holder', 'web-2');
  assert.deepEqual([await cell('stock:1', 'waiting'), await cell('stock:1', 'changes')], ['', '1']);
  assert.match(await cell('stock:1', 'held'), /^\d/, 'since when it is held is known now');
  await happened('stock:1').getByText('moved from web-1 to web-2').waitFor();
  await others.forceRelease('stock:1');
  await row('stock:1').waitFor({ state: 'detached' });
  await happened('stock:1').getByText('freed by web-2').waitFor();
});

test('figures tell what is held and waited for, and lead to the lock that matters', async () => {
  for (const name of ['a:1', 'a:2', 'b']) await locks.acquire(name, LONG);
  for (const name of ['a:2', 'b']) await enqueue(others, name);
  const third = await connect(server.url, { label: 'web-3' });
  try {
    await enqueue(third, 'b');
    await open();
    const tile = (which: string) => page.locator(`[data-tile=${which}] .value`);
    await until(async () => (await textOf(tile('waiting'))) === '3', 'three waiters');
    assert.equal(await textOf(tile('held')), '3');
    assert.match(await textOf(tile('longest')), /^\d/);
    assert.match(await textOf(tile('oldest')), /^\d/);
    assert.equal(await textOf(tile('full')), '0');
    const hottest = page.locator('#hottest li .name');
    assert.deepEqual(await hottest.allInnerTexts(), ['b', 'a:2'], 'the most waiters first');
    const line = page.locator('#hottest path').first();
    await until(async () => /L/.test((await line.getAttribute('d')) ?? ''), 'a line of the waits');
    await page.locator('[data-tile=longest] button').click();
    await page.getByRole('dialog', { name: 'Lock “a:2”' }).waitFor();
    await page.keyboard.press('Escape');
    await page.locator('#hottest button').first().click();
    await page.getByRole('dialog', { name: 'Lock “b”' }).waitFor();
    const hold = page.locator('#hold-spark path');
    await until(async () => /L/.test((await hold.getAttribute('d')) ?? ''), 'a line of the hold');
  } finally {
    await third.close();
  }
});

test('a semaphore tells how many permits are taken, and that it is full', async () => {
  const SHARE = { ...LONG, mode: 'shared', limit: 3 } as const;
  for (const manager of [locks, others]) await manager.acquire('api', SHARE);
  await locks.acquire('heavy', { ...SHARE, limit: 4, permits: 4 });
  const served = await serve({ locks });
  try {
    await open(served.url);
    await says('api', 'kind', '2/3');
    assert.equal(await cell('heavy', 'kind'), '4/4 full');
    assert.equal(await textOf(page.locator('[data-tile=full] .value')), '1');
    await locks.acquire('api', SHARE);
    await says('api', 'kind', '3/3 full');
    await row('heavy').click();
    await page.getByText('Semaphore: 4 of 4 permits are taken, it is full.').waitFor();
    await page.locator('#holders').getByText('Permits').waitFor();
  } finally {
    await served.close();
  }
});

test('each holder and waiter of a semaphore has its permits', async () => {
  const share = (permits: number, label: string) =>
    ({ ...LONG, mode: 'shared', limit: 5, permits, label }) as const;
  await locks.acquire('api', share(2, 'two'));
  await others.acquire('api', share(3, 'three'));
  const third = await connect(server.url);
  const waits: Promise<unknown>[] = [];
  // Callers of one process that want the same have a place each.
  for (const [manager, permits, label] of [
    [others, 2, 'one'],
    [others, 2, 'another'],
    [third, 4, 'four'],
  ] as const) {
    const { length } = (await locks.query({ name: 'api' })).pending;
    waits.push(manager.acquire('api', share(permits, label)).catch(() => {}));
    await until(
      async () => (await locks.query({ name: 'api' })).pending.length > length,
      'a queue entry',
    );
  }
  const served = await serve({ locks });
  try {
    await open(`${served.url}#lock=api`);
    await page.locator('#waiters li').nth(2).waitFor();
    const told = async (list: string) => {
      const cards = await page.locator(`${list} li`).allTextContents();
      return cards.map((card) => /^([\w. ]+)….*Permits(\d)/.exec(card)?.slice(1).join());
    };
    assert.deepEqual((await told('#holders')).sort(), ['three,3', 'two,2']);
    assert.deepEqual(await told('#waiters'), ['1. one,2', '2. another,2', '3. four,4']);
  } finally {
    await served.close();
    await Promise.all([others.close(), third.close()]);
  }
  await Promise.all(waits);
});

test('a finished slot is no held lock: it is done until its end, and may keep its result', async () => {
  await locks.runOnce('mail', { every: '1h' }, async () => {});
  await locks.runOnce('report', { every: '1h', keepResult: true }, async () => 4);
  await locks.request('kept', { ...LONG, linger: LONG.ttl / 3 }, () => {});
  const served = await serve({ locks, allowRelease: true });
  try {
    await open(served.url);
    const slot = page.locator('#rows tr', { hasText: 'report@' });
    await slot.getByText('done').waitFor();
    assert.match(await textOf(slot.locator('.c-lease')), /^until \d/);
    assert.equal(await textOf(slot.locator('.c-held')), '');
    assert.match(
      (await slot.locator('.c-lease span').getAttribute('title')) ?? '',
      /result is kept/,
    );
    await says('kept', 'kind', 'idle');
    assert.equal(await textOf(page.locator('[data-tile=held] .value')), '0');
    await slot.click();
    await page.getByText('It keeps its result.').waitFor();
    await page.getByRole('button', { name: 'Forget…' }).click();
    await page.getByText('Without it the job runs again. Its result is lost.').waitFor();
    await page.keyboard.press('Enter');
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: /Finished slots/ }).click();
    await until(async () => (await names()).length === 2, 'the slots alone');
  } finally {
    await served.close();
  }
});

test('a label is shown as it was given, and a long one is whole in the details', async () => {
  const label = 'deploy by anna@example.com (build 4711), for the shop, after the move of it';
  await locks.acquire('deploy', { ...LONG, label });
  const served = await serve({ locks });
  try {
    await open(served.url);
    await says('deploy', 'holder', label);
    assert.equal(await row('deploy').locator('.c-holder').getAttribute('title'), label);
    await row('deploy').click();
    await page.locator('#holders').getByText(label).waitFor();
  } finally {
    await served.close();
  }
});

test('an address leads to one lock, also of any name, and survives a reload', async () => {
  const name = 'a/b c:ü&#lock=x%';
  await locks.acquire(name, LONG);
  await open();
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.locator('#rows tr[data-name]').click();
  const dialog = page.getByRole('dialog', { name: `Lock “${name}”` });
  await dialog.waitFor();
  assert.ok(page.url().endsWith(`#lock=${encodeURIComponent(name)}`));
  await page.getByRole('button', { name: 'Copy link' }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), page.url());
  await page.locator('#holders').getByRole('button', { name: 'Copy id of web-1' }).click();
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await until(async () => (await copied()) === locks.clientId, 'the whole id');
  assert.equal(await textOf(page.locator('#holders code')), `…${locks.clientId.slice(-8)}`);
  await page.reload();
  await dialog.waitFor();
  await page.locator('#holders').getByText('web-1').waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  await until(() => !page.url().includes('#'), 'the address of the list');
  await page.evaluate(() => {
    location.hash = '#lock=gone';
  });
  await page.getByText('It is held by nobody, and nobody waits for it.').waitFor();
});

test('it tells which process waits for which, and calls no circle a deadlock', async () => {
  const first = await locks.acquire('a', LONG);
  const second = await others.acquire('b', LONG);
  // Callers of their own, none of which holds one lock while it waits for the other.
  const passing = async (manager: LockManager, name: string) => {
    const lock = await manager.acquire(name, LONG);
    await lock.release();
  };
  const waits = [passing(others, 'a'), passing(locks, 'a'), passing(locks, 'b')];
  for (const name of ['a', 'b']) {
    await until(async () => (await locks.query({ name })).pending.length > 0, 'a queue entry');
  }
  await open();
  await row('a').click();
  const circle =
    '“a” is held by web-1, which also waits for “b”, held by web-2, which also waits for “a”, held by web-1 again: a circle of processes';
  await page.getByText(circle).waitFor();
  await page.getByText('One caller of a process may wait while another holds').waitFor();
  await page.locator('#waiters').getByText('“b” (1 waiting)').waitFor();
  assert.equal(await page.locator('#chains li').count(), 1);
  await Promise.all([first.release(), second.release()]);
  await Promise.all(waits);
});

test('a new hold of the same process is told as one, and two processes of one label by their ids', async () => {
  const alike = await connect(server.url, { label: 'web-1' });
  try {
    const lock = await locks.acquire('a', LONG);
    await open();
    await row('a').waitFor();
    await lock.release();
    const again = await locks.acquire('a', LONG);
    const line = happened('a');
    const words = line.getByText('acquired');
    await words.waitFor();
    await until(async () => {
      const text = await textOf(line);
      // The look may have fallen between the two.
      return /acquired anew by web-1: a new hold|acquired by web-1/.test(text);
    }, 'the new hold');
    const taken = alike.acquire('a', LONG);
    await says('a', 'waiting', '1');
    await again.release();
    await taken;
    const ends = [locks, alike].map(({ clientId }) => `web-1 (…${clientId.slice(-8)})`);
    await line.getByText(`moved from ${ends[0]} to ${ends[1]}`).waitFor();
  } finally {
    await alike.close();
  }
});

test('a lock in constant motion is one line of what happened', async () => {
  const own = await serve({ locks });
  try {
    await open(own.url);
    await comeAndGo('hot', 4);
    await locks.acquire('calm', LONG);
    await happened('calm').waitFor();
    assert.equal(await happened('hot').count(), 1);
    assert.match(await textOf(happened('hot')), /×8$/);
  } finally {
    await own.close();
  }
});

/** Somebody holds a lock and frees it, so often, while the page shows it. */
async function comeAndGo(name: string, times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    const lock = await locks.acquire(name, LONG);
    await row(name).waitFor();
    await lock.release();
    await row(name).waitFor({ state: 'detached' });
  }
}

test('the history goes on without a page, and has a mark where nobody could look', async () => {
  let looks = 0;
  let away = false;
  const looked = async () => {
    // The next look may be under way.
    const enough = looks + 2;
    await until(() => looks >= enough, 'two looks');
  };
  const asked = () => {
    looks += 1;
    if (away) throw new Error('the server is away');
  };
  const lines = () => page.locator('#history li');
  const own = await serve({ locks: telling(locks, { age: {}, waited: {} }, asked) });
  try {
    await open(own.url);
    await comeAndGo('job', 1);
    await page.context().close();
    const lock = await locks.acquire('job', LONG);
    await looked();
    await lock.release();
    await looked();
    await open(`${own.url}#lock=job`);
    await lines().nth(4).waitFor();
    const seen = ['Freed by web-1', 'Acquired by web-1'];
    assert.deepEqual(
      (await lines().allTextContents()).map((line) => line.replace(/^.*:\d\d/, '').trim()),
      [...seen, ...seen, '.'],
    );
    assert.match(await textOf(lines().last()), /^Watched since/);
    await page.context().close();
    away = true;
    await looked();
    away = false;
    await open(`${own.url}#lock=job`);
    await lines().nth(5).waitFor();
    assert.match(await textOf(lines().first()), /^Nobody watched from .* to /);
  } finally {
    await own.close();
  }
});

test('rows are tinted by how long somebody waits', async () => {
  for (const name of ['none', 'some', 'long', 'longest']) await locks.acquire(name, LONG);
  for (const name of ['some', 'long', 'longest']) await enqueue(others, name);
  const waited = { long: 20_000, longest: 200_000 };
  const served = await serve({ locks: telling(locks, { age: {}, waited }) });
  try {
    await open(served.url);
    await row('longest').waitFor();
    const urgency = (name: string) => row(name).getAttribute('data-urgency');
    assert.deepEqual(await Promise.all(['none', 'some', 'long', 'longest'].map(urgency)), [
      '',
      'some',
      'long',
      'very-long',
    ]);
  } finally {
    await served.close();
  }
});

test('groups by prefix are closed and opened, also by the keyboard', async () => {
  for (const name of ['item:1', 'item:2', 'lone', 'user/7']) await locks.acquire(name, LONG);
  await enqueue(others, 'item:2');
  await open();
  await row('lone').waitFor();
  await page.getByLabel('Group by prefix').check();
  const head = page.locator('#rows tr.group', { hasText: 'item:' });
  await head.getByText('2 locks, 1 waiting').waitFor();
  assert.equal(await page.locator('#rows tr.group').count(), 3);
  await head.click();
  await until(async () => !(await names()).includes('item:1'), 'a closed group');
  assert.equal(await head.getAttribute('aria-expanded'), 'false');
  await head.press('Enter');
  await row('item:1').waitFor();
  await head.press('Enter');
  await until(async () => !(await names()).includes('item:1'), 'a group that was closed again');
  await page.reload();
  await head.waitFor();
  assert.equal(await head.getAttribute('aria-expanded'), 'false');
  await page.getByLabel('Group by prefix').uncheck();
  await row('item:1').waitFor();
  await page.reload();
  await row('item:1').waitFor();
  assert.equal(await page.locator('#rows tr.group').count(), 0);
});

test('names stand as people count, and one that is too long shows its start and its end', async () => {
  const long = (end: string) => `orders-${'x'.repeat(200)}-${end}`;
  for (const name of ['item:2-509', 'item:2-59', long('a'), long('b')]) {
    await locks.acquire(name, LONG);
  }
  await open(shows, 1000);
  await row(long('b')).waitFor();
  assert.deepEqual(await names(), ['item:2-59', 'item:2-509', long('a'), long('b')]);
  for (const end of ['a', 'b']) {
    const head = row(long(end)).locator('.c-name');
    assert.equal(await textOf(head), long(end));
    const [start, tail] = [head.locator('.cut > span').first(), head.locator('.cut > span').last()];
    assert.ok((await textOf(tail)).endsWith(`-${end}`));
    assert.ok(await start.evaluate((part) => part.scrollWidth > part.clientWidth));
    const [cell, shown] = await Promise.all([head.boundingBox(), tail.boundingBox()]);
    assert.ok(cell !== null && shown !== null);
    assert.ok(shown.x > cell.x && shown.x + shown.width <= cell.x + cell.width);
  }
});

test('the servers of a quorum are shown with what each says', async () => {
  const three = await RedisServer.startSeveral(3);
  const urls = three.map(({ url }) => url);
  const args = ['ui', '--interval', '100ms', '--json', '--allow-release'];
  const place = urls.flatMap((url) => ['--quorum', url]);
  const running = new Running([...args, ...place, '--longest-lease', '0ms'], environment());
  const quorum = await connect({ quorum: urls }, { label: 'web-9', longestLease: 0 });
  try {
    const lock = await quorum.acquire('job', LONG);
    await running.says('"url"');
    await open(running);
    await says('job', 'holder', 'web-9');
    await row('job').click();
    await page.getByText('3 of 3 servers name a holder.').waitFor();
    assert.equal(await page.locator('#votes tbody tr').count(), 3);
    assert.equal(await page.getByRole('button', { name: 'Release…' }).count(), 0);
    await page.keyboard.press('Escape');
    // One vote is no majority.
    await connect(urls[0] as string, { label: 'alone' }).then(async (one) => {
      await one.acquire('split', { ttl: 600_000, renew: false, leaveToExpire: true });
      await says('split', 'kind', 'no majority');
      assert.equal(await cell('split', 'holder'), 'asked for by alone');
      await one.close();
    });
    await three[2]?.kill();
    await row('job').click();
    await page.locator('#votes').getByText('no answer').waitFor();
    await page.locator('#holders').getByText('web-9').waitFor();
    await three[2]?.start();
    await page.locator('#votes').getByText('no answer').waitFor({ state: 'detached' });
    await lock.release();
  } finally {
    running.child.kill('SIGTERM');
    await running.ended;
    await quorum.close();
    await Promise.all(three.map((each) => each.stop()));
  }
});

test('it tells leaders from other locks', async () => {
  const stop = new AbortController();
  const leading = locks.lead('scheduler', { signal: stop.signal }, ({ signal }) => {
    return new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  });
  await locks.acquire('item:1', LONG);
  await open();
  await row('leader:scheduler').getByText('web-1').waitFor();
  assert.equal(await cell('leader:scheduler', 'kind'), 'leader');
  assert.equal(await cell('item:1', 'kind'), 'exclusive');
  assert.equal(await textOf(page.locator('[data-tile=oldest] button')), 'item:1');
  await row('leader:scheduler').click();
  await page.getByText('Held by the leader.').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: /Leaders/ }).click();
  await until(async () => (await names()).join() === 'leader:scheduler', 'leaders alone');
  stop.abort();
  await leading;
});

test('the candidates of an election are no alarm', async () => {
  const stop = new AbortController();
  const work = ({ signal }: { signal: AbortSignal }) =>
    new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  const leads = [locks, others].map((each) => each.lead('job', { signal: stop.signal }, work));
  await locks.acquire('item:1', LONG);
  await enqueue(others, 'item:1');
  const waited = { 'leader:job': 86_400_000 };
  const served = await serve({ locks: telling(locks, { age: {}, waited }) });
  try {
    await open(served.url);
    await says('leader:job', 'waiting', '1');
    await says('item:1', 'waiting', '1');
    assert.equal(await row('leader:job').getAttribute('data-urgency'), '');
    assert.equal(await cell('leader:job', 'longest'), '');
    assert.equal(await textOf(page.locator('[data-tile=waiting] .value')), '1');
    assert.equal(await textOf(page.locator('[data-tile=longest] button')), 'item:1');
    assert.deepEqual(await page.locator('#hottest li .name').allInnerTexts(), ['item:1']);
    await row('leader:job').click();
    await page.getByText('1 candidate.').waitFor();
    await page.getByRole('heading', { name: 'Candidates (1)' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByLabel('Only waited for').check();
    await until(async () => (await names()).join() === 'item:1', 'what is waited for');
  } finally {
    stop.abort();
    await Promise.all(leads);
    await served.close();
  }
});

test('names and labels are text, whatever is in them', async () => {
  const name = '<img src=x onerror="document.title=1">&amp;\u202e"\'\u0007';
  await locks.acquire(name, LONG);
  await open();
  await page.locator('#rows tr[data-name]').waitFor();
  const shown = await page.locator('#rows tr th').first().textContent();
  assert.equal(shown, '<img src=x onerror="document.title=1">&amp;\\u{202e}"\'\\u{7}');
  await page.locator('#rows tr[data-name]').click();
  assert.ok((await page.locator('#details-title').textContent())?.includes('\\u{202e}'));
  assert.equal(await page.locator('img').count(), 0);
  assert.match(await page.title(), /^Locks on redis:/);
});

test('search, sort and "only waited for" choose what is shown', async () => {
  await locks.acquire('b', LONG);
  await others.acquire('a', LONG);
  await locks.acquire('c', LONG);
  await enqueue(others, 'c');
  await open();
  await until(async () => (await cell('c', 'waiting')) === '1', 'the waiter');
  assert.deepEqual(await names(), ['a', 'b', 'c']);
  const heads = page.locator('th[aria-sort]');
  await page.getByRole('button', { name: 'Lock', exact: true }).click();
  await until(async () => (await names()).join() === 'c,b,a', 'the other way round');
  assert.equal(await heads.getAttribute('aria-sort'), 'descending');
  await page.getByRole('button', { name: 'Waiting', exact: true }).click();
  await until(async () => (await names()).join() === 'c,a,b', 'the most waiters first');
  await page.keyboard.press('/');
  await page.keyboard.type('WEB-2');
  await until(async () => (await names()).join() === 'c,a', 'what web-2 holds or waits for');
  assert.equal(await page.locator('#count').textContent(), '2 of 3 locks');
  await page.getByLabel('Only waited for').check();
  await until(async () => (await names()).join() === 'c', 'what is waited for');
  await page.reload();
  await until(async () => (await names()).join() === 'c', 'what was chosen before the reload');
  assert.equal(await heads.getAttribute('aria-sort'), 'descending');
  assert.equal(await page.locator('#search').inputValue(), 'WEB-2');
  assert.equal(await page.getByLabel('Only waited for').isChecked(), true);
  await page.locator('#search').fill('none');
  await page.getByText('No lock matches.').waitFor();
  await page.locator('#search').press('Enter');
  assert.equal(await page.getByRole('dialog').count(), 0, 'there is nothing to open');
  await page.locator('#search').fill('web-2');
  await page.locator('#search').press('Enter');
  await page.getByRole('dialog', { name: 'Lock “c”' }).waitFor();
});

test('the keyboard alone opens a lock and leaves it', async () => {
  for (const name of ['a', 'b', 'c']) await locks.acquire(name, LONG);
  await open();
  await row('c').waitFor();
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute('data-name'));
  while ((await focused()) === null) await page.keyboard.press('Tab');
  assert.equal(await focused(), 'a');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('End');
  assert.equal(await focused(), 'c');
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Lock “b”' });
  await dialog.waitFor();
  assert.equal(await dialog.getByRole('button', { name: 'Release' }).count(), 0, 'it only shows');
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  assert.equal(await focused(), 'b', 'the focus is back');
  // A row keeps the focus while others come and go.
  await locks.acquire('aa', LONG);
  await row('aa').waitFor();
  assert.equal(await focused(), 'b');
});

test('a screen reader gets a table with heads, counts and names', async () => {
  await locks.acquire('a', LONG);
  await open();
  await row('a').waitFor();
  const tree = await page.locator('body').ariaSnapshot();
  for (const part of [
    'heading "Locks on',
    'searchbox "Search"',
    'checkbox "Only waited for"',
    'group "Kind"',
    'button "Pause"',
    'columnheader "Holder"',
    'heading "What happened"',
  ]) {
    assert.ok(tree.includes(part), `${part} in\n${tree}`);
  }
  assert.match(tree, /row ".*a exclusive web-1 .*"/);
  assert.equal(await page.locator('#table').getAttribute('aria-rowcount'), '2');
});

test('a lock is released after a question, and only from the holder that was seen', async () => {
  await locks.acquire('job', LONG);
  await enqueue(others, 'job');
  await open(releases);
  await row('job').click();
  await page.getByRole('button', { name: 'Release…' }).click();
  const question = page.getByRole('dialog', { name: 'Take “job” away from web-1?' });
  await question.getByText('The next waiter gets it at once').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'confirm-no');
  await page.keyboard.press('Enter');
  await question.waitFor({ state: 'hidden' });
  assert.equal((await locks.query({ name: 'job' })).held[0]?.label, 'web-1', 'it was a no');
  await page.getByRole('button', { name: 'Release…' }).click();
  await question.getByRole('button', { name: 'Release it' }).click();
  await page.getByText('Released.', { exact: true }).waitFor();
  await page.locator('#holders').getByText('web-2').waitFor();
  // Asked about one holder, while another gets the lock.
  await page.getByRole('button', { name: 'Release…' }).click();
  await others.forceRelease('job');
  await locks.acquire('job', LONG);
  complaints = [];
  await page.getByRole('button', { name: 'Release it' }).click();
  await page
    .getByText('Not released: the lock has another holder by now: nothing was done.')
    .waitFor();
  assert.match(complaints.splice(0).join(), /409/);
  assert.equal((await locks.query({ name: 'job' })).held[0]?.label, 'web-1');
});

test('it says when the server is away, and goes on when it is back', async () => {
  const own = await RedisServer.start();
  const running = new Running(['ui', '--interval', '100ms', '--json'], environment(own));
  try {
    await running.says('"url"');
    await open(running);
    await own.kill();
    await page
      .getByRole('alert')
      .getByText(/This is not up to date: .*redis:/)
      .waitFor();
    await own.start();
    await page.getByRole('alert').waitFor({ state: 'hidden' });
    await page.locator('#state[data-state=live]').waitFor();
  } finally {
    running.child.kill('SIGTERM');
    await running.ended;
    await own.stop();
  }
});

test('a phone has cards that scroll with the page, and sorts them by a list', async () => {
  for (let i = 10; i < 60; i++) await locks.acquire(`item:${i}`, LONG);
  await enqueue(others, 'item:33');
  await open(shows, 390);
  await row('item:10').waitFor();
  assert.deepEqual(await findingsOf(page), []);
  await page.getByLabel('Sort by').selectOption('waiting');
  await until(async () => (await names())[0] === 'item:33', 'the one that is waited for');
  await row('item:33').getByText('1').first().waitFor();
  await row('item:33').focus();
  await page.keyboard.press('End');
  const last = row('item:59');
  await last.waitFor();
  assert.equal(
    await page.evaluate(() => document.activeElement?.getAttribute('data-name')),
    'item:59',
  );
  const box = await last.boundingBox();
  assert.ok(box !== null && box.y >= 0 && box.y + box.height <= 900, 'it is in the window');
});

test('ten thousand locks: the document stays small, and scrolling and searching do not stutter', async () => {
  const COUNT = 10_000;
  for (let i = 0; i < COUNT; i += 500) {
    const some = Array.from({ length: 500 }, (_, j) => `many:${String(i + j).padStart(5, '0')}`);
    await Promise.all(some.map((name) => locks.acquire(name, LONG)));
  }
  await open();
  await page.getByText('10,000 locks', { exact: true }).waitFor();
  assert.ok((await page.locator('#rows tr').count()) < 80);
  // Each frame's work, not its time of day: other programs run on this machine.
  const longest = await page.evaluate(async () => {
    const scroll = document.querySelector('#scroll') as HTMLElement;
    let slowest = 0;
    for (let i = 0; i < 50; i++) {
      scroll.scrollTop = (i * scroll.scrollHeight) / 50;
      const began = performance.now();
      scroll.dispatchEvent(new Event('scroll'));
      slowest = Math.max(slowest, performance.now() - began);
      await new Promise(requestAnimationFrame);
    }
    scroll.scrollTop = scroll.scrollHeight;
    return slowest;
  });
  assert.ok(longest < 500, `a step of scrolling took ${longest} ms`);
  await row('many:09999').waitFor();
  await page.locator('#search').fill('many:07777');
  await row('many:07777').waitFor();
  assert.deepEqual(await names(), ['many:07777']);
});
