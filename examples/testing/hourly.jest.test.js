const { connect } = require('holdfast')
const { closeHourly, HOUR } = require('./hourly')

let locks, others

beforeEach(async () => {
  jest.useFakeTimers()
  locks = await connect('memory:books')
  others = await connect('memory:books')
})

afterEach(async () => {
  jest.useRealTimers()
  await Promise.all([locks.close(), others.close()])
})

test('two instances close the books of each hour of a day once', async () => {
  const closed = []
  closeHourly(locks, (slot) => closed.push(slot))
  closeHourly(others, (slot) => closed.push(slot))
  for (let hour = 1; hour <= 24; hour++) {
    await locks.advance('1h')
    await jest.advanceTimersByTimeAsync(HOUR)
  }
  expect(new Set(closed).size).toBe(24)
  expect(closed).toHaveLength(24)
})
