// A client without holdfast: it takes the whole lock, polls, and shares the wait queue and the fence counter.
// It runs beside a manager of holdfast here, and prints what it sees of it.

import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { connect } from 'holdfast'
import { createClient } from 'redis'

const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379'

const read = (file) =>
  readFileSync(new URL(`../../src/protocol/lua/${file}`, import.meta.url), 'utf8')
const script = (file) => read(file).replace(/--#include (\w+\.lua)/g, (_, part) => script(part))
const [acquire, extend, release] = ['acquire.lua', 'extend.lua', 'release.lua'].map(script)

const redis = await createClient({ url }).connect()
const [seconds, micros] = await redis.sendCommand(['TIME'])
const epoch = seconds + micros.padStart(6, '0')

const lock = 'lock:item:42'
const sides = ['queue', 'waiters', 'shared', 'waiting'].map((side) => `{${lock}}:${side}`)
const keys = [lock, 'holdfast:fence', ...sides]
const token = `hf1.${randomUUID().replaceAll('-', '')}.1`
const ask = (intent) =>
  redis.eval(acquire, { keys, arguments: [token, '10000', epoch, '', intent, '-', '1'] })

const locks = await connect(url)
const before = await locks.acquire('item:42')
let answer = await ask('0')
const [, holder, , position] = answer
console.log(`enqueued at ${position}, holdfast has it: ${holder.includes(locks.clientId)}`)
await before.release()
// An array until the answer is the fence.
while (Array.isArray(answer)) {
  const [, , , rank, number] = answer
  // An entry that was lost is made again with its old number.
  answer = await ask(rank === 0 ? String(number) : 'poll')
  await setTimeout(20)
}
console.log(`its fence is greater: ${answer > before.fence}`)
console.log(`holdfast gets it meanwhile: ${(await locks.tryAcquire('item:42')) !== null}`)

// Due at each third of the lease.
const extended = await redis.eval(extend, { keys: [lock], arguments: [token, '20000'] })
console.log(`extended: ${extended === 1}`)

const next = locks.acquire('item:42')
// holdfast is in the queue, so the release grants the lock to it.
while ((await locks.query({ name: 'item:42' })).pending.length === 0) await setTimeout(20)
await redis.eval(release, { keys, arguments: [token, epoch] })
const after = await next
console.log(`the next fence is greater: ${after.fence > answer}`)

await after.release()
await locks.close()
redis.destroy()
