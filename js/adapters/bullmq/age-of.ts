/** For how long a worker has had a job when that begins. */

/**
 * BullMQ dates the hand-out of a job by the clock of the process that gets it, which may be set before the job begins. The
 * time since then is read by that clock, and by the monotonic one as both stood at the last reading: of one setting of the clock
 * since, one of the two knows nothing. The longer counts, for a job that seems to begin late costs a request at most.
 *
 * @internal
 */
export class AgeOf {
  /** The lead of the wall clock over the monotonic one at the last reading, in ms. */
  #ahead = Date.now() - performance.now();

  /** The time since a job was handed out, in ms. */
  of(processedOn: number): number {
    const [clock, monotonic] = [Date.now(), performance.now()];
    const age = Math.max(0, clock - processedOn, monotonic + this.#ahead - processedOn);
    this.#ahead = clock - monotonic;
    return Math.floor(age);
  }
}
