/** Folders that a test makes and removes. */

import { rmSync } from 'node:fs';

/**
 * Removes a folder with all that is in it, if there is one. A program that was just ended may still
 * write into it (a shell writes its history when its terminal closes), so removing is tried again for
 * some seconds.
 */
export function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
}
