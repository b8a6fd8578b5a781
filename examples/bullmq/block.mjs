// Jobs that block the event loop for longer than their lock lasts, in four workers, with holdfast and without it. Some workers
// are killed in the middle of a job: JOBS=1000 KILLS=50 node block.mjs

import { spawn } from 'node:child_process'
import { writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { Queue, Worker } from 'bullmq'
import { connect } from 'holdfast'
import { mayBlock } from 'holdfast/bullmq'

const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379'
const [jobs, kills, lockDuration] = [8, 1, 1_000].map((usual, i) =>
  Number(process.env[['JOBS', 'KILLS', 'LOCK_MS'][i]] ?? usual),
)
const WORKERS = 4
const { hostname: host, port } = new URL(url)
const connection = { host, port: Number(port || 6379), maxRetriesPerRequest: null }
const times = { lockDuration, stalledInterval: lockDuration / 2 }

const [, , name] = process.argv
if (name === undefined) await compare()
else await work(name)

/** A worker whose jobs block. */
async function work(name) {
  const cell = new Int32Array(new SharedArrayBuffer(4))
  const block = async ({ id }) => {
    // Written at once: what is sent in the usual way would wait for the event loop.
    writeSync(1, `${id}\n`)
    Atomics.wait(cell, 0, 0, 1.5 * lockDuration)
  }
  const processor = name.startsWith('with-') ? mayBlock(await connect(url), block) : block
  new Worker(name, processor, { connection, ...times }).on('error', () => {})
}

async function compare() {
  for (const how of ['without', 'with']) {
    const seen = await run(`${how}-${process.pid}`)
    console.log(
      `${how} holdfast: ${jobs} jobs, ${seen.completed} completed, ${seen.failed} failed; begun again: ${seen.ofKilled} of killed workers, ${seen.ofOthers} of others; back after ${seen.back} ms at most`,
    )
  }
}

async function run(name) {
  const queue = new Queue(name, { connection })
  const began = new Map()
  const killed = new Map()
  const back = []
  let again = { ofKilled: 0, ofOthers: 0 }
  let due = kills
  let isOver = false
  const workers = new Set()

  // It runs no job, but sets those back that have stalled.
  const checker = new Worker(name, null, { connection, ...times })
  checker.on('stalled', (id) => {
    const at = killed.get(id)?.at
    if (at !== undefined) back.push(Date.now() - at)
  })
  await checker.startStalledCheckTimer()

  const start = () => {
    const child = spawn(process.execPath, [import.meta.filename, name], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    workers.add(child)
    createInterface(child.stdout).on('line', (id) => begins(child, id))
  }
  const begins = (child, id) => {
    const before = began.get(id)
    if (before !== undefined) again = count(again, before === killed.get(id)?.child)
    began.set(id, child)
    // Spread over the run, each in the middle of its job.
    const isNext = due > 0 && before === undefined && began.size >= ((kills - due) * jobs) / kills
    if (isNext) {
      due -= 1
      void kill(child, id)
    }
  }
  const kill = async (child, id) => {
    await sleep(0.75 * lockDuration)
    if (isOver || began.get(id) !== child) return
    killed.set(id, { child, at: Date.now() })
    child.kill('SIGKILL')
    workers.delete(child)
    start()
  }

  await queue.addBulk(Array.from({ length: jobs }, () => ({ name: 'job', data: {} })))
  for (let i = 0; i < WORKERS; i++) start()
  const ended = async () => await queue.getJobCounts('completed', 'failed')
  let counts = await ended()
  while (counts.completed + counts.failed < jobs) {
    await sleep(100)
    counts = await ended()
  }
  isOver = true
  for (const child of workers) child.kill()
  await checker.close()
  await queue.obliterate({ force: true })
  await queue.close()
  return { ...counts, ...again, back: Math.max(0, ...back) }
}

function count({ ofKilled, ofOthers }, isOfKilled) {
  return isOfKilled ? { ofKilled: ofKilled + 1, ofOthers } : { ofKilled, ofOthers: ofOthers + 1 }
}
