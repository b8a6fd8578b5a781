import pg from 'pg'

/** A later owner of the lock has read or written what this one wants to write. */
export class StaleFenceError extends Error {}

/** The stock and the sales, in PostgreSQL. */
export class Stock {
  #pool
  /** Every statement under the lock ends with this. */
  #andNobodyLater

  /** `checkFences: false` is there to show what happens then. */
  constructor({ connectionString, checkFences = true }) {
    this.#pool = new pg.Pool({ connectionString })
    // An idle connection that breaks is replaced; without a listener it would end the process.
    this.#pool.on('error', (error) => console.error(error.message))
    this.#andNobodyLater = checkFences ? 'AND fence <= $1' : ''
  }

  /** How many are left and how many were sold; `undefined` if there is no such item. */
  async look(item) {
    const { rows } = await this.#pool.query(
      `SELECT n AS left, (SELECT count(*)::int FROM sales WHERE sales.item = stock.item) AS sold
       FROM stock WHERE item = $1`,
      [item],
    )
    return rows[0]
  }

  /** How many are left, for the owner of the lock: from now on no earlier owner can write. */
  async read(item, fence) {
    const { rows } = await this.#pool.query(
      `UPDATE stock SET fence = $1 WHERE item = $2 ${this.#andNobodyLater} RETURNING n`,
      [fence, item],
    )
    if (rows.length === 0) throw new StaleFenceError(`fence ${fence} is stale`)
    return rows[0].n
  }

  /** Writes down a sale and what it leaves, both or neither. */
  async sell(item, fence, left, price) {
    const { rowCount } = await this.#pool.query(
      `WITH sold AS (
         UPDATE stock SET n = $3, fence = $1 WHERE item = $2 ${this.#andNobodyLater} RETURNING item
       )
       INSERT INTO sales (item, price, fence) SELECT item, $4, $1 FROM sold`,
      [fence, item, left, price],
    )
    if (rowCount === 0) throw new StaleFenceError(`fence ${fence} is stale`)
  }

  close() {
    return this.#pool.end()
  }
}
