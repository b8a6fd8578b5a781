import { connect } from 'holdfast'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { closeHourly, HOUR } from './hourly.js'

let locks, others

beforeEach(async () => {
  vi.useFakeTimers()
  locks = await connect('memory:books')
  others = await connect('memory:books')
})

afterEach(async () => {
  vi.useRealTimers()
  await Promise.all([locks.close(), others.close()])
})

test('two instances close the books of each hour of a day once', async () => {
  const closed = []
  closeHourly(locks, (slot) => closed.push(slot))
  closeHourly(others, (slot) => closed.push(slot))
  for (let hour = 1; hour <= 24; hour++) {
    await locks.advance('1h') // the clock of the store, for both
    await vi.advanceTimersByTimeAsync(HOUR) // the timers of this process
  }
  expect(new Set(closed).size).toBe(24)
  expect(closed).toHaveLength(24)
})

test('a job that hangs loses its lock after maxHold', async () => {
  const lock = await locks.acquire('import', { maxHold: '1h' })
  const next = others.acquire('import', { wait: '2h' })
  await locks.advance('1h')
  expect(lock.signal.reason.reason).toBe('maxHold')
  expect((await next).held).toBe(true)
})
