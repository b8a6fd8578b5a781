const { connect, LockTimeoutError } = require('holdfast')
const { Shop } = require('./shop')
const { SlowStock } = require('./slow-stock')

let locks, others

beforeEach(async () => {
  locks = await connect('memory:shop')
  others = await connect('memory:shop')
})

afterEach(() => Promise.all([locks.close(), others.close()]))

test('two instances sell five items to five of twenty buyers', async () => {
  const stock = new SlowStock(5)
  const shops = [new Shop(locks, stock), new Shop(others, stock)]
  const buyers = Array.from({ length: 20 }, (_, i) => shops[i % 2].sell('tea'))
  const sold = (await Promise.all(buyers)).filter(Boolean)
  expect(sold).toHaveLength(5)
})

test('nothing is sold while another instance has the lock', async () => {
  await others.acquire('item:tea')
  const shop = new Shop(locks, new SlowStock(5), 50)
  await expect(shop.sell('tea')).rejects.toThrow(LockTimeoutError)
})
