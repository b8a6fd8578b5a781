const { setTimeout: sleep } = require('node:timers/promises')

/** Stands in for a database: its answers take a moment, in which another buyer can come between. */
class SlowStock {
  constructor(left) {
    this.left = left
  }

  async read(_item) {
    await sleep(1)
    return this.left
  }

  async write(_item, left) {
    await sleep(1)
    this.left = left
  }
}

module.exports = { SlowStock }
