import { once } from 'node:events'
import { createServer } from 'node:http'

/** Knows the price of everything, and keeps who asks waiting until told otherwise. */
export class Prices {
  #server = createServer((_request, response) => this.#handle(() => response.end('100')))
  #handle = (answer) => answer()

  static async open() {
    const prices = new Prices()
    prices.#server.listen(0, '127.0.0.1')
    await once(prices.#server, 'listening')
    return prices
  }

  get url() {
    return `http://127.0.0.1:${this.#server.address().port}`
  }

  /** Resolves when the next one asks, with what gives him the answer. */
  asked() {
    return new Promise((resolve) => {
      this.#handle = resolve
    })
  }

  answerAtOnce() {
    this.#handle = (answer) => answer()
  }

  close() {
    this.#server.close()
    this.#server.closeAllConnections()
  }
}
