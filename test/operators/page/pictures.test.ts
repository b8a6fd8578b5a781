/** Pictures of the page at three widths in both themes, each checked. `npm run docs:pictures` puts some of them into docs/. */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { ROOT } from '../../support/child.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { startBrowser } from './browser.js';
import { findingsOf } from './checker.js';
import { Scene, type Served, STORY, serve, telling } from './scene.js';

const PICTURES = join(ROOT, 'target', 'pictures');
const TITLE = 'Locks on redis://redis.internal:6379';
const SIZES = [
  { width: 1440, height: 900 },
  { width: 820, height: 1180 },
  { width: 390, height: 844 },
  { width: 320, height: 568 },
];

let server: RedisServer;
let browser: Browser;
let locks: LockManager;
let shop: Served;
let empty: Served;
const scene = new Scene();

before(async () => {
  mkdirSync(PICTURES, { recursive: true });
  server = await RedisServer.start();
  browser = await startBrowser();
  locks = await connect(server.url);
  await scene.begin(server.url, locks);
  let looks = 0;
  let away = false;
  const asked = () => {
    looks += 1;
    if (away) throw new Error('the server is away');
  };
  shop = await serve({ locks: telling(locks, STORY, asked), title: TITLE, allowRelease: true });
  const other = await connect(server.url, { prefix: 'other:' });
  empty = await serve({ locks: other, title: TITLE });
  // Somebody watched before, and left; then nobody could look; then another came.
  for (const moves of [true, false]) {
    const page = await browser.newPage({ reducedMotion: 'reduce' });
    await page.goto(shop.url);
    await page.locator('#state[data-state=live]').waitFor();
    if (moves) await scene.move();
    if (moves) await page.locator('#happened li', { hasText: 'order:10007' }).waitFor();
    if (!moves) continue;
    await page.close();
    away = true;
    // The next look may be under way.
    const enough = looks + 2;
    await until(() => looks >= enough, 'a look that fails');
    away = false;
  }
});

after(async () => {
  await browser?.close();
  await Promise.all([shop?.close(), empty?.close()]);
  await scene.end();
  await locks?.close();
  await server?.stop();
});

/** Opens a page, lets `shows` bring it to the state that counts, and takes its picture. */
async function picture(
  name: string,
  url: string,
  options: { width: number; height: number; colorScheme: 'dark' | 'light' },
  shows: (page: Page) => Promise<void>,
): Promise<void> {
  const { width, height, colorScheme } = options;
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme,
    reducedMotion: 'reduce',
  });
  try {
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    const complaints: string[] = [];
    page.on('console', (message) => complaints.push(message.text()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    await page.goto(url);
    await page.locator('#state[data-state=live]').waitFor();
    await shows(page);
    await page.screenshot({ path: join(PICTURES, `${name}-${width}-${colorScheme}.png`) });
    assert.deepEqual(await findingsOf(page), []);
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
  }
}

async function isFilled(page: Page, looks = 2): Promise<void> {
  await page.locator('[data-tile=full] .value', { hasText: '1' }).waitFor();
  await page.locator('#hottest li').nth(2).waitFor();
  // The lines need some looks.
  const points = () => page.locator('#hottest path').first().getAttribute('d');
  await until(async () => ((await points()) ?? '').split('L').length > looks, 'a line');
}

for (const size of SIZES) {
  for (const colorScheme of ['light', 'dark'] as const) {
    const options = { ...size, colorScheme };
    test(`the list, ${size.width} px, ${colorScheme}`, () =>
      picture('list', shop.url, options, (page) => isFilled(page, size.width > 1_000 ? 5 : 2)));

    test(`the list in groups, by waits, ${size.width} px, ${colorScheme}`, () =>
      picture('groups', shop.url, options, async (page) => {
        await isFilled(page);
        await page.getByLabel('Group by prefix').check();
        if (size.width > 640) await page.locator('[data-sort=waiting]').click();
        else await page.getByLabel('Sort by').selectOption('waiting');
        await page.locator('#rows tr.group', { hasText: 'stock:' }).waitFor();
        // On a phone the cards are further down.
        if (size.width <= 640) await page.locator('#tools').evaluate((it) => it.scrollIntoView());
      }));

    test(`one lock, ${size.width} px, ${colorScheme}`, () =>
      picture('lock', `${shop.url}#lock=invoice%3A2026-11`, options, async (page) => {
        await page.getByRole('dialog', { name: 'Lock “invoice:2026-11”' }).waitFor();
        await page.locator('#chains li').first().waitFor();
      }));

    test(`a semaphore, ${size.width} px, ${colorScheme}`, () =>
      picture('semaphore', `${shop.url}#lock=api%3Apayments`, options, async (page) => {
        await page.getByText('4 of 4 permits are taken, it is full').waitFor();
      }));

    test(`what was not watched, ${size.width} px, ${colorScheme}`, () =>
      picture('history', `${shop.url}#lock=cart%3Ahot`, options, async (page) => {
        await page.getByText('Nobody watched from').first().waitFor();
      }));

    test(`the question, ${size.width} px, ${colorScheme}`, () =>
      picture('question', `${shop.url}#lock=stock%3A4711`, options, async (page) => {
        await page.getByRole('button', { name: 'Release…' }).click();
        await page.getByRole('dialog', { name: /^Take “stock:4711” away/ }).waitFor();
      }));

    test(`no lock at all, ${size.width} px, ${colorScheme}`, () =>
      picture('empty', empty.url, options, async (page) => {
        await page.getByText('No lock is held or waited for.').waitFor();
      }));
  }
}
