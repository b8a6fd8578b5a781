const HOUR = 3_600_000

/** Closes the books of each hour once, whichever instance of the service does it. */
function closeHourly(locks, close) {
  return setInterval(() => {
    locks.runOnce('books', { every: '1h' }, (_lock, slot) => close(slot)).catch(console.error)
  }, HOUR)
}

module.exports = { closeHourly, HOUR }
