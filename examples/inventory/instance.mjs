import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

/** A process that runs the service. */
export class Instance {
  #child
  #url

  /** Starts it, and waits until it listens. */
  static async start(env) {
    const instance = new Instance()
    const service = join(import.meta.dirname, 'service.mjs')
    instance.#child = spawn(process.execPath, [service], {
      env: { ...process.env, PORT: '0', ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    process.once('exit', () => instance.#child.kill('SIGKILL'))
    for await (const line of createInterface(instance.#child.stdout)) {
      instance.#url = line
      return instance
    }
    throw new Error('the service ended before it listened')
  }

  async buy() {
    const response = await fetch(`${this.#url}/buy?item=42`, { method: 'POST' })
    return { status: response.status, ...(await response.json()) }
  }

  async look() {
    return (await fetch(`${this.#url}/stock?item=42`)).json()
  }

  /** Stops the process, all of its threads: it does not notice. */
  pause() {
    this.#child.kill('SIGSTOP')
  }

  resume() {
    this.#child.kill('SIGCONT')
  }

  async stop() {
    const { exitCode, signalCode } = this.#child
    if (exitCode !== null || signalCode !== null) return
    const gone = once(this.#child, 'exit')
    this.resume()
    this.#child.kill('SIGTERM')
    await gone
  }
}
