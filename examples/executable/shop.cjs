const { createRequire } = require('node:module')

// In a single executable, require has Node's own modules alone. What lies beside the program is found from its path.
const { connect } = createRequire(process.execPath)('holdfast')

connect(process.env.REDIS_URL ?? 'memory:').then(async (locks) => {
  await locks.request('item:42', (lock) => console.log(`sold under ${lock.fence}`))
  await locks.close()
})
