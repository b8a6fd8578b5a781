/** Words by which code says what a key is for. */

const LOCK = new Set(
  'lock locks locked locking locker lockkey lockname lockid lockvalue locktoken mutex mutexes semaphore lease leases leader leadership redlock singleflight'.split(
    ' ',
  ),
);
const TAKE = /^(acquire|acquired|obtain|obtained|claim|claimed|take|exclusive|exclusively)$/;
const OTHER =
  /^(idempotency|idempotent|idem|dedup|dedupe|deduplication|duplicate|duplicates|nonce|jti|replay|rate|ratelimit|limit|limiter|throttle|throttled|cooldown|debounce|cache|cached|caches|seen|visited|processed|otp|captcha|invite|coupon|counter|notified|sent|session|sessions|lockout|blocked|username|signup|register|unique|metric|online|presence|quota|attempts)$/;

/** The words of an identifier or a text, in lower case. */
export function wordsOf(text: string): string[] {
  return text
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/([A-Z]+)([A-Z][a-z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter((word) => word.length > 1);
}

/** Words that end like `joblock`, but are no locks. */
const NO_LOCK =
  /(?:^(?:un|pad|f|war|hem|wed|grid|dead|sher|inter|air|fet|row)|(?<!n|syn)c|b)lock(?:s|ed)?$/;

/** Whether a text speaks of locks. */
export function saysLock(text: string): boolean {
  return wordsOf(text).some(isLock);
}

function isLock(word: string): boolean {
  return LOCK.has(word) || (/(?:lock(?:s|ed)?|mutex)$/.test(word) && !NO_LOCK.test(word));
}

/** Whether a text speaks of locks or of taking something. */
export function saysTake(text: string): boolean {
  return wordsOf(text).some((word) => isLock(word) || TAKE.test(word));
}

/** Whether a text names another use of a key that is written once. */
export function saysOther(text: string): boolean {
  return wordsOf(text).some((word) => OTHER.test(word)) || /rate.?limit|id[ae]mpot/i.test(text);
}
