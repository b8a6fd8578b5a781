/*
 * One exclusive lock, its queue, and callers that wait in line.
 *
 * The server runs one script at a time: each `atomic` below is one. Requests travel apart from each other: they may be
 * late, lost, or executed twice, and so may answers. A caller may be slow, give up, or die at any point.
 *
 * Time has no numbers. The only assumption is that of every lease: a caller stops to believe before the lease ends at
 * the server. So a lease may end whenever its owner does not believe in it: see `expire`.
 *
 * Promises, each an assertion below:
 *   AtMostOneHolder   no two callers believe at a time that they hold the lock
 *   FencesRise        each that begins to believe has a greater fence than all before
 *   FirstComeFirst    nobody is granted the lock ahead of one that has waited longer
 *   NobodyForgotten   a patient caller ends: spin reports a state in which one waits for ever as an invalid end state
 */

#ifndef CALLERS
#define CALLERS 3
#endif
#ifndef TRIES
#define TRIES 1
#endif
#define TOKENS (CALLERS * TRIES)   /* one for each attempt: 1, 2, …; a token is never used again */

#ifndef LAST_FENCE
#define LAST_FENCE 3       /* here every history ends */
#endif

/* The keys of the server. */
byte owner = 0;                       /* lock: the token of the owner, 0 if it is free */
byte fence = 0;                       /* holdfast:fence: the last fence that was issued */
chan queue = [TOKENS] of { byte };    /* …:queue: the tokens that wait, in order */
byte waits[TOKENS + 1] = 0;           /* whether a token is among them */

/* What is on its way. */
bool acquire[TOKENS + 1] = false;     /* requests to run acquire.lua */
bool release[TOKENS + 1] = false;     /* requests to run release.lua */
byte mail[TOKENS + 1] = 0;            /* the fence in an answer or message about a grant, 0 if there is none */

/* What is true, though nobody knows all of it. */
bool lease[TOKENS + 1] = false;       /* the lease of a grant has not ended by the clocks */
bool believes[TOKENS + 1] = false;    /* lock.held */
byte believers = 0;
byte greatest = 0;                    /* of the fences in which somebody believed */

inline grant(to) {
  assert(waits[to] || len(queue) == 0);                          /* FirstComeFirst */
  if
  :: waits[to] -> queue?first; assert(first == to); waits[to] = false   /* FirstComeFirst */
  :: else -> skip
  fi;
  owner = to;
  lease[to] = true;
  announce(to)
}

/* issue_fences in fence.lua. The answer may be lost. */
inline announce(to) {
#ifndef SAME_FENCE
  fence++;
#else
  fence = (fence == 0 -> 1 : fence);
#endif
  if :: mail[to] = fence :: skip fi
}

/* serve_queue in wait_queue.lua: grants by message. */
inline serve() {
  if
  :: owner == 0 && len(queue) > 0 -> queue?<next>; grant(next)
  :: else -> skip
  fi;
  next = 0; first = 0
}

/* The request arrived; the network may keep a copy, which arrives again. */
inline arrived(request) { if :: request = false :: skip fi }

/* All that happens at the server to one token. */
proctype Server(byte token) {
  byte first, next;
end:
  do
  :: atomic { acquire[token] && fence < LAST_FENCE ->                               /* acquire.lua */
       arrived(acquire[token]);
       if
       :: owner == token -> announce(token)                   /* a repeat: a later fence */
#ifndef JUMP_QUEUE
       :: owner == 0 && !waits[token] && len(queue) == 0 -> grant(token)
#else
       :: owner == 0 && !waits[token] -> grant(token)
#endif
       :: else ->
            if :: !waits[token] -> queue!token; waits[token] = true :: else -> skip fi;
            serve()
       fi }
  :: atomic { release[token] && fence < LAST_FENCE ->                               /* release.lua */
       release[token] = false;
       if :: waits[token] -> queue??eval(token); waits[token] = false :: else -> skip fi;
#ifndef RELEASE_OF_ANOTHER
       if :: owner == token -> owner = 0; lease[token] = false; mail[token] = 0 :: else -> skip fi;
#else
       owner = 0; lease[token] = false; mail[token] = 0;
#endif
       serve() }
  :: release[token] -> release[token] = false                 /* a lost request; repeats stand for one of acquire */
  :: atomic { lease[token] && !believes[token] ->             /* expire: nobody else hears of it */
       lease[token] = false;
       mail[token] = 0;                                       /* by the time in it this is too late now */
       if :: owner == token -> owner = 0 :: else -> skip fi }
  od
}

inline believe(token) {
  assert(mail[token] > greatest);                             /* FencesRise */
  greatest = mail[token];
  believes[token] = true;
  believers++;
  assert(believers == 1);                                     /* AtMostOneHolder */
  mail[token] = 0
}

inline forget(token) {
  believers = believers - believes[token];
  believes[token] = false
}

proctype Caller(byte me) {
  byte try, token;
  bool patient;
  for (try : 1 .. TRIES) {
#ifndef REUSED_TOKEN
    token = (me - 1) * TRIES + try;
#else
    token = (me - 1) * TRIES + 1;
#endif
    if :: patient = true :: patient = false fi;
    acquire[token] = true;
    do
    :: atomic { mail[token] != 0 -> believe(token); break }
#ifndef NO_POLL
    :: !acquire[token] && mail[token] == 0 -> acquire[token] = true
#endif
    :: !patient -> break                                      /* gives up */
    :: fence == LAST_FENCE -> goto end_dead
    od;
    /* It works for a while, or notices the end of the lease. */
    if
    :: atomic { forget(token); release[token] = true }        /* never used again once this is sent */
    :: atomic { forget(token); goto end_dead }                /* killed */
    fi
  }
end_dead: skip
}

init {
  atomic {
    byte i;
    for (i : 1 .. TOKENS) { run Server(i) }
    for (i : 1 .. CALLERS) { run Caller(i) }
  }
}
