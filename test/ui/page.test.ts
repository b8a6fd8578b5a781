/** The page of `holdfast ui` in a browser. */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { environment, Running } from '../cli/support.js';
import { ROOT } from '../support/child.js';
import { connect, type LockManager } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';
import { startBrowser } from './browser.js';

const PICTURES = join(ROOT, 'target', 'pictures');
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
  mkdirSync(PICTURES, { recursive: true });
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

async function open(running = shows, options: { colorScheme?: 'dark' | 'light' } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 720 }, ...options });
  page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.goto(JSON.parse(running.stdout).url);
  await page.locator('#state[data-state=live]').waitFor();
}

const row = (name: string) => page.locator(`#rows tr[data-name="${name}"]`);
const cells = async (name: string) =>
  (await row(name).locator('th, td').allInnerTexts()).map((text) => text.trim());
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
  await others.acquire('api', SHARE);
  await enqueue(others, 'stock:1');
  await open();
  assert.ok(!page.url().includes('token'), 'the token has left the address line');
  await row('stock:1').getByText('web-1').waitFor();
  await until(async () => (await cells('stock:1'))[6] === '1', 'the waiter');
  const [name, mode, holder, fence, held, lease, waiting, longest, changes] =
    await cells('stock:1');
  assert.deepEqual(
    [name, mode, holder, fence, waiting, changes],
    ['stock:1', 'exclusive', 'web-1', '', '1', '0'],
  );
  assert.match(held ?? '', /^<\d+(\.\d)?m?s$/);
  assert.match(longest ?? '', /^\d+(\.\d)?m?s$/);
  assert.match(lease ?? '', /^(9m\d\ds|10m00s)$/);
  assert.deepEqual((await cells('api')).slice(1, 4), ['shared', 'web-1 +1', String(share.fence)]);
  await lock.release();
  await row('stock:1').getByText('web-2').waitFor();
  const again = await cells('stock:1');
  assert.deepEqual([again[6], again[8]], ['', '1']);
  assert.match(again[4] ?? '', /^\d/, 'since when it is held is known now');
  await page.getByText('stock:1 moved from web-1 to web-2').waitFor();
  await others.forceRelease('stock:1');
  await row('stock:1').waitFor({ state: 'detached' });
  await page.getByText('stock:1 freed by web-2').waitFor();
});

test('it tells leaders from other locks', async () => {
  const stop = new AbortController();
  const leading = locks.lead('scheduler', { signal: stop.signal }, ({ signal }) => {
    return new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  });
  await locks.acquire('item:1', LONG);
  await open();
  await row('leader:scheduler').getByText('web-1').waitFor();
  assert.equal((await cells('leader:scheduler'))[1], 'leader');
  assert.equal((await cells('item:1'))[1], 'exclusive');
  await row('leader:scheduler').click();
  await page.getByText('It is held, leader.').waitFor();
  stop.abort();
  await leading;
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
  await until(async () => (await cells('c'))[6] === '1', 'the waiter');
  assert.deepEqual(await names(), ['a', 'b', 'c']);
  const heads = page.locator('th[aria-sort]');
  await page.getByRole('button', { name: 'Lock' }).click();
  await until(async () => (await names()).join() === 'c,b,a', 'the other way round');
  assert.equal(await heads.getAttribute('aria-sort'), 'descending');
  await page.getByRole('button', { name: 'Waiting' }).click();
  await until(async () => (await names()).join() === 'c,a,b', 'the most waiters first');
  await page.keyboard.press('/');
  await page.keyboard.type('WEB-2');
  await until(async () => (await names()).join() === 'c,a', 'what web-2 holds or waits for');
  assert.equal(await page.locator('#count').textContent(), '2 of 3 locks');
  await page.getByLabel('Only locks that are waited for').check();
  await until(async () => (await names()).join() === 'c', 'what is waited for');
  await page.locator('#search').fill('none');
  await page.getByText('No lock matches the search.').waitFor();
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
    'checkbox "Only locks that are waited for"',
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

test('ten thousand locks: the document stays small, and scrolling and searching do not stutter', async () => {
  const COUNT = 10_000;
  for (let i = 0; i < COUNT; i += 500) {
    const some = Array.from({ length: 500 }, (_, j) => `many:${String(i + j).padStart(5, '0')}`);
    await Promise.all(some.map((name) => locks.acquire(name, LONG)));
  }
  await open();
  await page.getByText(`${COUNT} locks`, { exact: true }).waitFor();
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

for (const colorScheme of ['light', 'dark'] as const) {
  test(`it is readable in ${colorScheme}`, async () => {
    await locks.acquire('invoice:2026-11', LONG);
    const moving = await others.acquire('stock:4711', LONG);
    await locks.acquire('api:limit', { ...LONG, mode: 'shared', limit: 3 });
    await others.acquire('api:limit', { ...LONG, mode: 'shared', limit: 3 });
    for (let i = 0; i < 8; i++) await locks.acquire(`item:${1_000 + i * 37}`, LONG);
    await enqueue(others, 'invoice:2026-11');
    await open(releases, { colorScheme });
    await row('stock:4711').waitFor();
    await moving.release();
    await locks.acquire('stock:4711', LONG);
    await page.getByText('stock:4711 moved from web-2 to web-1').first().waitFor();
    await until(async () => (await cells('invoice:2026-11'))[6] === '1', 'the waiter');
    await page.screenshot({ path: join(PICTURES, `ui-${colorScheme}.png`) });
    const ratio = await page.evaluate(contrast);
    assert.ok(ratio >= 4.5, `contrast ${ratio}`);
  });
}

/** The least contrast of text to what is behind it, as WCAG 2 computes it. */
function contrast(): number {
  const canvas = document
    .createElement('canvas')
    .getContext('2d', { willReadFrequently: true }) as CanvasRenderingContext2D;
  const luminance = (colour: string) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red = 0, green = 0, blue = 0] = Array.from(
      canvas.getImageData(0, 0, 1, 1).data,
      (byte) => {
        const part = byte / 255;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      },
    );
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element: Element | null): string => {
    for (let each = element; each !== null; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
    return 'white';
  };
  const texts = Array.from(
    document.querySelectorAll('h1, h2, p, th button, td, tbody th, li time, .warn'),
  );
  const ratios = texts.map((element) => {
    const [a, b] = [getComputedStyle(element).color, behind(element)].map(luminance);
    return (Math.max(a ?? 0, b ?? 0) + 0.05) / (Math.min(a ?? 0, b ?? 0) + 0.05);
  });
  return Math.min(...ratios);
}
