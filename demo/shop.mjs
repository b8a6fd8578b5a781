// A shop with one article and its stock in Redis (or a stand-in), and the steps of a buyer: read the stock, check
// it, pay, write it. Between reading and writing, another buyer can read the same number; only the
// lock keeps the buyers apart.

import { setTimeout as sleep } from 'node:timers/promises';

const LOCK = 'sale:item:42';
const PAYMENT_MS = 1;

export class Shop {
  #redis;
  #stock;
  #sales;

  constructor(redis, prefix) {
    this.#redis = redis;
    this.#stock = `${prefix}stock`;
    this.#sales = `${prefix}sales`;
  }

  async open(items) {
    await this.#redis.sendCommand(['HSET', this.#stock, 'left', items]);
  }

  async left() {
    return Number(await this.#redis.sendCommand(['HGET', this.#stock, 'left']));
  }

  /** Sells one item, if there is one. The item's number is the stock before the sale. */
  async sell(buyer, fence) {
    const left = await this.left();
    if (left <= 0) return false;
    await sleep(PAYMENT_MS);
    await this.#redis.sendCommand(['HSET', this.#stock, 'left', left - 1]);
    const row = JSON.stringify({ buyer, item: left, fence });
    await this.#redis.sendCommand(['RPUSH', this.#sales, row]);
    return true;
  }

  /** All sales, in the order in which they were written. */
  async sales() {
    const rows = await this.#redis.sendCommand(['LRANGE', this.#sales, 0, -1]);
    return rows.map((row) => JSON.parse(row));
  }
}

/** Lets buyers come, each at its time; `onAnswer` gets every answer at once. */
export async function serve(redis, locks, { visits, prefix, withLock }, onAnswer) {
  const shop = new Shop(redis, prefix);
  const buy = withLock ? buyWithLock : buyWithoutLock;
  await Promise.all(
    visits.map(async ({ buyer, after }) => {
      await sleep(after);
      onAnswer(await buy(shop, buyer, locks));
    }),
  );
}

async function buyWithoutLock(shop, buyer) {
  return { bought: await shop.sell(buyer) };
}

async function buyWithLock(shop, buyer, locks) {
  const asked = now();
  const lock = await locks.acquire(LOCK, { ttl: 10_000, wait: 60_000, label: buyer });
  const acquired = now();
  try {
    const bought = await shop.sell(buyer, lock.fence);
    return { bought, waited: acquired - asked, acquired, released: now() };
  } finally {
    await lock.release();
  }
}

/** In ms, by a clock that all processes of a machine share. */
function now() {
  return Number(process.hrtime.bigint()) / 1e6;
}
