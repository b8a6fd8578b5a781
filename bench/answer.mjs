// The worker's side of a child: answers the parent, which asks one thing at a time.

/** Each of `commands` gets its argument and returns its value, or throws. */
export function answer(commands) {
  process.on('message', async ({ command, argument }) => {
    try {
      process.send({ value: await commands[command](argument) });
    } catch (error) {
      process.send({ error: describe(error) });
    }
  });
  // However the parent ends, its end of the channel closes.
  process.on('disconnect', () => process.exit());
}

function describe(error) {
  const { name = 'Error', message = String(error), cause } = error ?? {};
  return cause === undefined ? `${name}: ${message}` : `${name}: ${message} (${cause})`;
}
