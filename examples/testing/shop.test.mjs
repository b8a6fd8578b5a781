import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import { connect } from 'holdfast'
import { Shop } from './shop.js'
import { SlowStock } from './slow-stock.js'

let locks, others

beforeEach(async () => {
  // Two managers on one store: as if two processes used one server.
  locks = await connect('memory:shop')
  others = await connect('memory:shop')
})

afterEach(() => Promise.all([locks.close(), others.close()]))

test('two instances sell five items to five of twenty buyers', async () => {
  const stock = new SlowStock(5)
  const shops = [new Shop(locks, stock), new Shop(others, stock)]
  const buyers = Array.from({ length: 20 }, (_, i) => shops[i % 2].sell('tea'))
  const sold = (await Promise.all(buyers)).filter(Boolean)
  assert.equal(sold.length, 5)
})

test('nothing is sold while another instance has the lock', async () => {
  await others.acquire('item:tea', { label: 'inventory' })
  const shop = new Shop(locks, new SlowStock(5), 50)
  await assert.rejects(shop.sell('tea'), { code: 'ERR_LOCK_TIMEOUT', holderLabel: 'inventory' })
})
