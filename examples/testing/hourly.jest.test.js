const { connect } = require('holdfast')
const { closeHourly, HOUR } = require('./hourly')

test('two instances close the books of each hour of a day once', async () => {
  jest.useFakeTimers()
  const instances = [await connect('memory:books'), await connect('memory:books')]
  const closed = []
  for (const locks of instances) closeHourly(locks, (slot) => closed.push(slot))
  for (let hour = 1; hour <= 24; hour++) {
    await instances[0].advance('1h')
    await jest.advanceTimersByTimeAsync(HOUR)
  }
  expect(new Set(closed).size).toBe(24)
  expect(closed).toHaveLength(24)
  await Promise.all(instances.map((locks) => locks.close()))
})
