#!/bin/sh
# Installs the tarballs of ./packages into this folder as they lie there, and takes a lock. --force: most of them are
# for other platforms.
set -e
npm install --no-audit --no-fund --force ./packages/*.tgz
node -e "require('holdfast').connect('memory:').then(async (locks) => {
  await locks.request('item', (lock) => console.log(process.platform, process.arch, lock.fence));
  await locks.close();
})"
