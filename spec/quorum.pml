/*
 * An exclusive lock on three servers that know nothing of each other. Two rounds grant it: a vote, and a seal of the fence.
 *
 * Each `atomic` of a server is one script. Requests may be late, and arrive after later ones. A server may
 * restart, and then has lost its locks. Time has no numbers: a lease may end at a server whenever its attempt does not
 * believe in it, and the attempt is never granted any more then, since its validity counts from before the first request.
 *
 * Promises, each an assertion below:
 *   AtMostOneHolder   no two attempts believe at a time that they hold the lock
 *   FencesRise        each that begins to believe has a greater fence than all before
 */

#define SERVERS 3
#define ATTEMPTS 2
#ifndef MAJORITY
#define MAJORITY 2
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif

/* A number for each pair of a server, 0 to 2, and an attempt, 1 to ATTEMPTS. */
#define AT(server, attempt) ((server) * (ATTEMPTS + 1) + (attempt))
#define PAIRS (SERVERS * (ATTEMPTS + 1))

/* The keys of the servers. */
byte holder[SERVERS] = 0;             /* lock: the attempt, 0 if it is free */
byte counter[SERVERS] = 0;            /* {lock}:fence; as high as the clock after a loss, so it is kept here */
bool silent[SERVERS] = false;         /* restarted within the longest lease: it has no vote */

/* Requests on their way, and answers. */
mtype = { NOT_SENT, SENT, NO, YES, SEALED };
mtype vote[PAIRS] = NOT_SENT;
mtype seal[PAIRS] = NOT_SENT;
byte saw[PAIRS] = 0;                  /* the counter in the answer to a vote */

/* What the attempts want, and what is true. */
byte proposal[ATTEMPTS + 1] = 0;      /* the fence of the vote, an estimate */
byte sealing[ATTEMPTS + 1] = 0;       /* the fence of the second round */
bool over[ATTEMPTS + 1] = false;      /* its validity is over */
bool believes[ATTEMPTS + 1] = false;
bool had[PAIRS] = false;              /* it had a lease at the server before its restart */
byte believers = 0;
byte greatest = 0;
byte restarts = 0;

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define COUNT(answers, a, what) \
  ((answers[AT(0, a)] == what) + (answers[AT(1, a)] == what) + (answers[AT(2, a)] == what))
#define voted(server, a) (vote[AT(server, a)] == YES || vote[AT(server, a)] == SEALED)
#define VOTES(a) (COUNT(vote, a, YES) + COUNT(vote, a, SEALED))

/* Nobody reads the answers to an attempt that is over. This changes nothing, and makes the search shorter. */
inline forget_answers(server, attempt) {
  if
  :: over[attempt] ->
       saw[AT(server, attempt)] = 0;
       if :: vote[AT(server, attempt)] != SENT -> vote[AT(server, attempt)] = NO :: else -> skip fi;
       if :: seal[AT(server, attempt)] != SENT -> seal[AT(server, attempt)] = NO :: else -> skip fi
  :: else -> skip
  fi
}

inline run_vote(server, attempt) {                            /* quorum/vote.lua */
  if
  :: silent[server] || (holder[server] != 0 && holder[server] != attempt) -> vote[AT(server, attempt)] = NO
  :: else ->
       holder[server] = attempt;
       if
       :: proposal[attempt] > counter[server] ->
            counter[server] = proposal[attempt]; vote[AT(server, attempt)] = SEALED
       :: else -> vote[AT(server, attempt)] = YES
       fi;
       saw[AT(server, attempt)] = counter[server]
  fi;
  forget_answers(server, attempt)
}

inline run_seal(server, attempt) {                            /* quorum/seal.lua */
  if
  :: holder[server] == attempt && counter[server] < sealing[attempt] ->
       counter[server] = sealing[attempt]; seal[AT(server, attempt)] = YES
  :: else -> seal[AT(server, attempt)] = NO
  fi;
  forget_answers(server, attempt)
}

/* All that happens at one server to any attempt. */
proctype Server(byte server) {
end:
  do
  :: atomic { vote[AT(server, 1)] == SENT -> run_vote(server, 1) }
  :: atomic { vote[AT(server, 2)] == SENT -> run_vote(server, 2) }
  :: atomic { seal[AT(server, 1)] == SENT -> run_seal(server, 1) }
  :: atomic { seal[AT(server, 2)] == SENT -> run_seal(server, 2) }
  :: atomic { holder[server] != 0 && !believes[holder[server]] ->   /* withdraw.lua, or the lease ends */
       over[holder[server]] = true; holder[server] = 0 }
  :: atomic { restarts < RESTARTS && holder[server] != 0 ->   /* a restart, which forgets the lock */
       restarts++;
       had[AT(server, holder[server])] = true;
       holder[server] = 0;
#ifndef VOTE_AT_ONCE
       silent[server] = true
#endif
     }
  /* It votes again when all leases that it may have forgotten are over. */
  :: atomic { silent[server] && (!had[AT(server, 1)] || over[1]) && (!had[AT(server, 2)] || over[2]) ->
       silent[server] = false }
  od
}

inline begin(a, number) {
  if
  :: !over[a] ->
       assert(number > greatest);                             /* FencesRise */
       greatest = number;
       believes[a] = true; believers++;
       assert(believers == 1)                                 /* AtMostOneHolder */
  :: else -> skip
  fi
}

/* The second round: above all counters that the first one met, on the servers that said yes. */
inline ask_for_seals(a) {
  for (s : 0 .. SERVERS - 1) {
    if
    :: voted(s, a) -> sealing[a] = MAX(sealing[a], saw[AT(s, a)] + 1)
    :: else -> skip
    fi
  }
  for (s : 0 .. SERVERS - 1) {
    if :: voted(s, a) -> seal[AT(s, a)] = SENT :: else -> skip fi
  }
}

proctype Attempt(byte a) {
  byte s;
  atomic {                                                    /* an estimate that may be too low */
#ifdef PROPOSAL
    proposal[a] = PROPOSAL;
#else
    if :: proposal[a] = 0 :: proposal[a] = 1 fi;
#endif
    for (s : 0 .. SERVERS - 1) { vote[AT(s, a)] = SENT }
  }
  if
  :: atomic { COUNT(vote, a, SEALED) >= MAJORITY -> begin(a, proposal[a]) }
  :: atomic { VOTES(a) >= MAJORITY && COUNT(vote, a, SEALED) < MAJORITY -> ask_for_seals(a) };
#ifndef NO_SEAL
     if
     :: atomic { COUNT(seal, a, YES) >= MAJORITY -> begin(a, sealing[a]) }
     :: true -> skip                                          /* gives up */
     fi
#else
     atomic { begin(a, sealing[a]) }
#endif
  :: true -> skip                                             /* gives up */
  fi;
  /* It works for a while, then releases. */
  atomic {
    believers = believers - believes[a];
    believes[a] = false;
    over[a] = true;
    for (s : 0 .. SERVERS - 1) { forget_answers(s, a) }
  }
}

init {
  atomic {
    byte s, a;
    for (s : 0 .. SERVERS - 1) { run Server(s) }
    for (a : 1 .. ATTEMPTS) { run Attempt(a) }
  }
}
