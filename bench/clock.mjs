/** The time in µs by a clock that all processes of a machine share. */
export function clock() {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e6 + nanoseconds / 1e3;
}
