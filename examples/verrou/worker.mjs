// Goes on with an order under the lock of another process, and releases it.

import { LockFactory } from '@verrou/core'
import { connect } from 'holdfast'
import { holdfastStore } from './store.mjs'

const locks = await connect(process.env.REDIS_URL)
const factory = new LockFactory(holdfastStore({ locks }).factory())

const lock = factory.restoreLock(JSON.parse(process.argv[2]))
await lock.extend('1m')
console.log(`goes on with ${lock.serialize().key}`)
await lock.release()
console.log(`locked: ${await lock.isLocked()}`)
await locks.close()
