"""redis-py's Lock under the control of a test: a line of JSON in for every call, a line of JSON out.

Calls run on threads of their own, so that one may wait for a lock while others go on.
"""

import json
import sys
import threading

import redis
from redis.exceptions import LockError

server = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))
locks = {}
output = threading.Lock()


def acquire(call):
    ttl = call["ttl"]
    lock = server.lock(
        call["name"],
        timeout=None if ttl is None else ttl / 1000,
        sleep=0.01,
        # The thread of a later release or extension is another one.
        thread_local=False,
    )
    wait = call["wait"]
    if not lock.acquire(blocking=wait > 0, blocking_timeout=wait / 1000):
        return None
    locks[call["id"]] = lock
    return call["id"]


def release(call):
    try:
        locks[call["lock"]].release()
    except LockError:
        return False
    return True


def extend(call):
    try:
        return locks[call["lock"]].extend(call["ttl"] / 1000, replace_ttl=True)
    except LockError:
        return False


def answer(call):
    try:
        reply = {"result": CALLS[call["do"]](call)}
    except Exception as error:
        reply = {"error": repr(error)}
    with output:
        print(json.dumps({"id": call["id"], **reply}), flush=True)


CALLS = {"acquire": acquire, "release": release, "extend": extend}

for line in sys.stdin:
    # Daemons, so that a call which still waits does not outlive the test.
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
