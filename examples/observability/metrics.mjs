import { subscribe, tracingChannel } from 'node:diagnostics_channel'
import client from 'prom-client'

/** What `locks.stats()` counts since `connect`. */
const COUNTS = {
  acquired: 'Locks acquired',
  handedOff: 'Those of them that came from another caller of the manager, without the server',
  timedOut: 'Acquires that waited in vain',
  abandoned: 'Locks that nothing referred to any more while they were held',
  renewals: 'Leases renewed',
  requests: 'Requests sent to the server',
}
/** What it tells of this moment. */
const LEVELS = { held: 'Locks held', waiting: 'Acquires under way' }

/** Registers the metrics of one manager, and of what its process acquires and loses. */
export function measureLocks(locks, registers = [client.register]) {
  for (const [name, help] of Object.entries(COUNTS)) {
    const collect = readInto((counter) => {
      counter.reset()
      counter.inc(locks.stats()[name])
    })
    new client.Counter({ name: `holdfast_${snake(name)}_total`, help, registers, collect })
  }
  for (const [name, help] of Object.entries(LEVELS)) {
    const collect = readInto((gauge) => gauge.set(locks.stats()[name]))
    new client.Gauge({ name: `holdfast_${snake(name)}`, help, registers, collect })
  }
  measureOldestHold(locks, registers)
  measureHandOffs(locks, registers)
  measureAcquires(registers)
  measureLosses(registers)
}

/** prom-client calls `collect` as a method of the metric. */
function readInto(read) {
  return function collect() {
    read(this)
  }
}

function measureOldestHold(locks, registers) {
  const collect = readInto((gauge) => gauge.set(locks.stats().oldestHold / 1000))
  const help = 'For how long the oldest lock has been held, in seconds'
  new client.Gauge({ name: 'holdfast_oldest_hold_seconds', help, registers, collect })
}

/** The manager has a histogram already: its buckets, added up as `histogram_quantile` wants them. */
function measureHandOffs(locks, registers) {
  const collect = readInto((counter) => {
    counter.reset()
    let sum = 0
    for (const { upTo, count } of locks.stats().handOffs) {
      sum += count
      counter.inc({ le: upTo === Number.POSITIVE_INFINITY ? '+Inf' : String(upTo / 1000) }, sum)
    }
  })
  const help = 'How long hand-offs from other processes took, in seconds'
  const name = 'holdfast_hand_off_seconds_bucket'
  new client.Counter({ name, help, labelNames: ['le'], registers, collect })
}

/**
 * The label is the first part of the name, `item` of `item:42`: a label with as many values as there are
 * items is more than Prometheus can bear.
 */
function measureAcquires(registers) {
  const histogram = new client.Histogram({
    name: 'holdfast_acquire_seconds',
    help: 'How long acquiring took, waiting included',
    labelNames: ['kind', 'outcome'],
    buckets: [0.001, 0.005, 0.025, 0.1, 0.5, 2, 10, 60],
    registers,
  })
  const begun = new WeakMap()
  tracingChannel('holdfast:acquire').subscribe({
    start(message) {
      begun.set(message, performance.now())
    },
    asyncEnd(message) {
      const start = begun.get(message)
      if (start === undefined) return
      const { lock, result, error } = message
      const outcome = error?.code ?? error?.name ?? (result === null ? 'taken' : 'acquired')
      const seconds = (performance.now() - start) / 1000
      histogram.observe({ kind: kindOf(lock), outcome }, seconds)
    },
    end() {},
    asyncStart() {},
    error() {},
  })
}

function measureLosses(registers) {
  const help = 'Locks that were lost'
  const labelNames = ['kind', 'reason']
  const counter = new client.Counter({ name: 'holdfast_lost_total', help, labelNames, registers })
  subscribe('holdfast:lost', ({ lock, error }) => {
    counter.inc({ kind: kindOf(lock), reason: error.reason })
  })
}

function kindOf(name) {
  return name.split(':', 1)[0]
}

function snake(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}
