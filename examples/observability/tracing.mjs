import { tracingChannel } from 'node:diagnostics_channel'
import { SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'

const OPERATIONS = ['acquire', 'extend', 'release']

/**
 * Makes a span of every acquire, extend and release of this process, below the span that is active where
 * it is called. Answers a function that ends this.
 */
export function traceLocks(tracer = trace.getTracer('holdfast')) {
  const ends = OPERATIONS.map((operation) => traceOperation(tracer, operation))
  return () => {
    for (const end of ends) end()
  }
}

function traceOperation(tracer, operation) {
  const channel = tracingChannel(`holdfast:${operation}`)
  const spans = new WeakMap()
  // Node gives all of them the same message for one operation, with its result or error in the end.
  const subscribers = {
    start(message) {
      const attributes = { 'lock.name': message.lock, 'lock.server': message.server }
      const span = tracer.startSpan(`lock ${operation}`, { kind: SpanKind.CLIENT, attributes })
      spans.set(message, span)
    },
    asyncEnd(message) {
      const span = spans.get(message)
      // Who subscribes in the middle of an operation has not seen its start.
      if (span === undefined) return
      if (message.error !== undefined) fail(span, message.error)
      else if (operation === 'acquire') describe(span, message.result)
      span.end()
    },
    end() {},
    asyncStart() {},
    error() {},
  }
  channel.subscribe(subscribers)
  return () => channel.unsubscribe(subscribers)
}

/** `null` is the answer of a `tryAcquire` whose lock was taken: no error. */
function describe(span, lock) {
  span.setAttribute('lock.acquired', lock !== null)
  if (lock === null) return
  span.setAttribute('lock.mode', lock.mode)
  // Several locks that were acquired together have one each.
  if (lock.fence !== undefined) span.setAttribute('lock.fence', lock.fence)
}

function fail(span, error) {
  span.recordException(error)
  span.setAttribute('error.type', error.code ?? error.name)
  span.setStatus({ code: SpanStatusCode.ERROR, message: error.message })
}
