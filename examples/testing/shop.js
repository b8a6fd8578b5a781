/** Sells what is in stock. Any number of processes may run it. */
class Shop {
  constructor(locks, stock, patience = 5_000) {
    this.locks = locks
    this.stock = stock
    this.patience = patience
  }

  /** Sells one item, if there is one. */
  sell(item) {
    return this.locks.request(`item:${item}`, { wait: this.patience }, async () => {
      const left = await this.stock.read(item)
      if (left === 0) return false
      await this.stock.write(item, left - 1)
      return true
    })
  }
}

module.exports = { Shop }
