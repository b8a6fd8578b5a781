// The demo: a flash sale without a lock, the same sale with holdfast, one account that ten tasks want
// at once, and a lock that outlives a blocked event loop. Ends with 0 if holdfast kept every promise.

import { constants } from 'node:os';
import { parseArgs } from 'node:util';
import { blockWhileHolding } from './blocked.mjs';
import { Picture } from './picture.mjs';
import { duration, percentile, Report } from './report.mjs';
import { Shop } from './shop.mjs';
import { Stage } from './stage.mjs';

const ITEMS = 100;
const BUYERS = 500;
const PROCESSES = 4;
const RUSH_MS = 250;
const TASKS = 10;
const LEASE_MS = 1_000;

const NO_SERVER =
  'No Redis here, so the demo runs inside this process, on memory:. With redis-server on PATH, or ' +
  'REDIS_URL set, it runs in several.';

const { picture: file } = parseArgs({ options: { picture: { type: 'string' } } }).values;
const picture = file === undefined ? undefined : new Picture(process.stdout);
const report = new Report(
  picture ?? process.stdout,
  picture === undefined ? process.env : { TERM: 'xterm', LANG: 'C.UTF-8' },
);
const stage = new Stage();

async function main() {
  await stage.open(PROCESSES);
  if (stage.server.embedded) report.line(NO_SERVER);
  report.title('holdfast: a flash sale', [
    `${ITEMS} items are for sale, and ${BUYERS} buyers come within ${RUSH_MS} ms.`,
  ]);
  report.fact('server', await stage.describeServer());
  report.fact('buyers', `${stage.crowd.description}, ${BUYERS / PROCESSES} in each`);
  const without = await saleWithoutLock();
  const withLock = await saleWithLock();
  await oneOfTen();
  await blockedEventLoop();
  summarize(without, withLock);
}

async function saleWithoutLock() {
  report.title('1  Flash sale without a lock', [
    'Each buyer reads the stock, pays, and writes the stock less one.',
  ]);
  const sale = await holdSale('without-lock', false);
  const { item, times } = mostSold(sale.rows);
  report.fact('sold', `${sale.sold} of ${ITEMS} items, to ${sale.buyers} buyers`);
  report.fact('same item', `sold up to ${times} times (item ${item})`);
  report.fact('took', duration(sale.ms));
  report.line();
  if (sale.oversold > 0) report.mishap(`oversold by ${sale.oversold}`);
  else report.line('  By luck, nothing was oversold this time.');
  return sale;
}

async function saleWithLock() {
  report.title('2  Flash sale with holdfast', [
    'The same buyers do the same, each while holding the lock sale:item:42.',
    'Who finds it held waits in the queue; the release hands it to the next.',
    'Every lock has a fence, a number larger than that of any owner before.',
  ]);
  const sale = await holdSale('with-lock', true);
  const waits = sale.answers.map(({ waited }) => waited);
  const [p50, p99] = [0.5, 0.99].map((share) => duration(percentile(waits, share)));
  const rate = Math.round((waits.length * 1000) / sale.ms);
  report.fact('sold', `${sale.sold} of ${ITEMS} items, to ${sale.buyers} buyers`);
  report.fact('sold out', `for ${sale.soldOut} buyers`);
  report.fact('took', `${duration(sale.ms)}, ${rate} acquisitions per second`);
  report.fact('wait for lock', `p50 ${p50}, p99 ${p99}`);
  report.fact('hand-off', handOffs(sale.answers));
  report.line();
  showRows(sale.rows);
  report.line();
  checkSale(sale);
  return sale;
}

/** From the end of one hold to the begin of the next. */
function handOffs(answers) {
  const holds = answers.toSorted((a, b) => a.acquired - b.acquired);
  const gaps = holds.slice(1).map(({ acquired }, i) => Math.max(acquired - holds[i].released, 0));
  const [p50, p99] = [0.5, 0.99].map((share) => (percentile(gaps, share) * 1000).toFixed(0));
  return `p50 ${p50} µs, p99 ${p99} µs from one buyer to the next`;
}

async function oneOfTen() {
  report.title('3  One of ten', [
    `${TASKS} tasks ask for one account at once, with tryAcquire, which does not wait.`,
  ]);
  const ask = () => stage.locks.tryAcquire('account:7');
  const asked = performance.now();
  const answers = await Promise.all(Array.from({ length: TASKS }, ask));
  const took = performance.now() - asked;
  const first = answers.find((lock) => lock !== null);
  const nulls = answers.filter((lock) => lock === null).length;
  const released = await first?.release();
  const next = await ask();
  await next?.release();
  report.fact('got the lock', `${TASKS - nulls} task, fence ${first?.fence}`);
  report.fact('got null', `${nulls} tasks`);
  report.fact('after release', `taken again, fence ${next?.fence}`);
  report.fact('took', `${duration(took)} for ${TASKS} answers`);
  report.line();
  report.check(nulls === TASKS - 1, `exactly one of ${TASKS} had the lock`);
  report.check(released === true && next !== null, 'released, it could be taken again');
  report.check(next?.fence > first?.fence, 'the next fence is larger');
}

async function blockedEventLoop() {
  report.title('4  A blocked event loop', [
    `A synchronous loop blocks this process for three leases of ${duration(LEASE_MS)}: no timer, no promise`,
    'runs. A lock by hand (SET NX PX, renewed by setInterval) is held beside one of holdfast.',
  ]);
  const { locks, redis, prefix } = stage;
  const after = await blockWhileHolding({ locks, redis, prefix, ttlMs: LEASE_MS });
  report.fact('blocked', duration(after.blockedMs));
  report.fact(
    'by timer',
    after.timerLock ? 'still held' : 'lost: its key is gone, another could be in',
  );
  report.fact('by holdfast', after.held ? `held, for ${after.remaining} ms more` : 'lost');
  report.line();
  report.check(after.held && after.released, 'holdfast renewed its lock from a thread of its own');
}

function summarize(without, withLock) {
  report.title('Summary', []);
  for (const [label, sale] of [
    ['without lock:', without],
    ['with holdfast:', withLock],
  ]) {
    const over = sale.oversold > 0 ? ` (oversold by ${sale.oversold})` : '';
    report.fact(label, `sold ${sale.sold} of ${ITEMS}${over}`);
    report.fact('', report.bar(sale.sold, ITEMS, 10));
  }
  report.line();
  if (report.failed === 0) report.check(true, 'holdfast kept every promise');
  else report.mishap(`${report.failed} of the checks above failed`);
}

/** Opens a shop, lets all buyers buy, and counts. */
async function holdSale(name, withLock) {
  const prefix = `${stage.prefix}${name}:`;
  const shop = new Shop(stage.redis, prefix);
  await shop.open(ITEMS);
  const answers = [];
  const began = performance.now();
  const ticker = setInterval(() => showProgress(answers, performance.now() - began), 50);
  try {
    const visit = { buyers: BUYERS, rushMs: RUSH_MS, prefix, withLock };
    await stage.crowd.shop(visit, (answer) => answers.push(answer));
  } finally {
    clearInterval(ticker);
    report.progress('');
  }
  const ms = performance.now() - began;
  const rows = await shop.sales();
  return {
    ms,
    answers,
    rows,
    sold: rows.length,
    oversold: Math.max(rows.length - ITEMS, 0),
    buyers: new Set(rows.map(({ buyer }) => buyer)).size,
    soldOut: answers.filter(({ bought }) => !bought).length,
    left: await shop.left(),
  };
}

function showProgress(answers, ms) {
  const sold = answers.filter(({ bought }) => bought).length;
  const counts = `sold ${sold} of ${ITEMS}, answered ${answers.length} of ${BUYERS}`;
  report.progress(`${counts}, ${(ms / 1000).toFixed(1)} s`);
}

function mostSold(rows) {
  const counts = new Map();
  for (const { item } of rows) counts.set(item, (counts.get(item) ?? 0) + 1);
  const [item, times] = [...counts].reduce((a, b) => (b[1] > a[1] ? b : a));
  return { item, times };
}

function showRows(rows) {
  const cells = rows.map(({ buyer, item, fence }, index) => [index + 1, item, buyer, fence]);
  const gap = ['...', '...', '...', '...'];
  const shown = cells.length > 4 ? [...cells.slice(0, 3), gap, cells.at(-1)] : cells;
  report.table(['sale', 'item', 'buyer', 'fence'], shown);
}

function checkSale({ rows, sold, buyers, answers, soldOut, left }) {
  const items = new Set(rows.map(({ item }) => item)).size;
  const exact = [sold, items, buyers].every((count) => count === ITEMS) && left === 0;
  const answered = answers.length === BUYERS && soldOut === BUYERS - ITEMS;
  const rising = rows.every(({ fence }, index) => index === 0 || fence > rows[index - 1].fence);
  report.check(exact, `exactly ${ITEMS} sold, each item once, none lost`);
  report.check(answered, `every other buyer saw "sold out" (${soldOut} of ${BUYERS})`);
  report.check(rising, 'every sale has a larger fence than the sale before');
}

/** An error in words for people; with the place in the code only if the code is wrong. */
function explain(error) {
  const message = error instanceof TypeError && !error.code ? error.stack : error.message;
  if (stage.server === undefined || stage.server.ours) return message;
  return `${message}\n\nThe server is ${stage.server.origin}.`;
}

async function closeStage() {
  const deleted = await stage.close();
  if (deleted > 0) report.line(`\nDeleted the ${deleted} keys of the demo, ${stage.prefix}*`);
}

let interrupted;

async function interrupt(signal) {
  report.progress('');
  report.line(`\nInterrupted (${signal}).`);
  await closeStage().catch(() => {});
  process.exit(128 + constants.signals[signal]);
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  // Under npm, one Ctrl-C arrives twice.
  process.on(signal, () => {
    interrupted ??= interrupt(signal);
  });
}

try {
  await main();
} catch (error) {
  // A failure during the closing is not reported.
  await interrupted;
  report.failure(explain(error));
}
await interrupted;
await closeStage().catch((error) => report.failure(explain(error)));
// The first two parts tell the story.
picture?.save(file, '3  One of ten');
process.exitCode = report.failed === 0 ? 0 : 1;
