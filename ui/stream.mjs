// The stream of events from the server, and what it means for the state that the page shows.

/** Calls `on.hello`, `on.state`, `on.change` and `on.failure` with what the server sends, and `on.away` with why it is gone. */
export class Stream {
  #on;
  #source;

  constructor(on) {
    this.#on = on;
  }

  open() {
    this.close();
    this.#source = new EventSource('events');
    for (const event of ['hello', 'state', 'change', 'failure']) {
      this.#source.addEventListener(event, ({ data }) => this.#on[event](JSON.parse(data)));
    }
    this.#source.addEventListener('error', () => {
      const ended = this.#source.readyState === EventSource.CLOSED;
      this.#on.away(
        ended ? 'Not connected: reload the page, or open its address again' : 'Connecting…',
      );
    });
  }

  close() {
    this.#source?.close();
  }
}
