// Takes in an order: locks it, and passes the lock on as text. It may end at once, for the lock is its owner's.

import { LockFactory } from '@verrou/core'
import { connect } from 'holdfast'
import { holdfastStore } from './store.mjs'

const locks = await connect(process.env.REDIS_URL)
const factory = new LockFactory(holdfastStore({ locks }).factory())

const lock = factory.createLock(`order:${process.argv[2]}`, '1m')
if (await lock.acquireImmediately()) console.log(JSON.stringify(lock.serialize()))
else console.log('somebody is at it')
await locks.close()
