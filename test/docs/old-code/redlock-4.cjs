const { Redis } = require('ioredis');
const Redlock = require('redlock');

const redis = new Redis(process.env.REDIS_URL);
const redlock = new Redlock([redis], { retryCount: 10, retryDelay: 200 });

exports.sell = async function sell(item, work) {
  const lock = await redlock.lock(item, 10000);
  try {
    await work();
    return true;
  } finally {
    await lock.unlock();
  }
};

exports.close = () => redis.quit();
