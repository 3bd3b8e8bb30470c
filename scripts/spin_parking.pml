/* Parking, as kernels/znnpy_kernels/scheduling/{parking,worker}.py run it; included by models of the scheduler.

   These say how many WORKERS there are, and by LOOK whether there is anything to do: it sets `seen`. Who includes it has
   the variables byte v, woken; bool won, and workers bool seen and byte me.

   -DNO_RECHECK       a worker parks without looking again after its announcement: it sleeps for ever
   -DCLAIM_SEARCHING  wakers claim a worker that looks for tasks, too: the count of sleepers no longer tells of all */

#define AWAKE 0
#define PARKED 1
#define SEARCHING 2

byte sleepers;
byte state[WORKERS];
byte semaphore[WORKERS];
bool stop;

#ifdef CLAIM_SEARCHING
#define MAY_BE_CLAIMED(worker) (state[worker] != AWAKE)
#else
#define MAY_BE_CLAIMED(worker) (state[worker] == PARKED)
#endif

inline claim(worker) {
  atomic { won = MAY_BE_CLAIMED(worker); if :: won -> state[worker] = AWAKE :: else fi }
  if :: won -> sleepers-- :: else fi
}

/* After a push and a fence. */
inline wake(most) {
  woken = 0; v = 0;
  if
  :: sleepers > 0 ->
    do
    :: v == WORKERS || woken == most -> break
    :: else ->
      if
      :: MAY_BE_CLAIMED(v) -> claim(v); if :: won -> semaphore[v]++; woken++ :: else fi
      :: else
      fi;
      v++
    od
  :: else
  fi
}

inline park() {
  sleepers++;
  state[me] = PARKED;
  seen = false;
#ifndef NO_RECHECK
  LOOK;
#endif
  if
  :: seen -> claim(me)
  :: else -> do :: state[me] == PARKED -> semaphore[me] > 0; semaphore[me]-- :: else -> break od
  fi
}

/* Once workers, and who wakes them, have left: nobody is counted as a sleeper. */
inline check_sleepers() {
  assert(sleepers == 0);
  for (v : 0 .. WORKERS - 1) { assert(state[v] == AWAKE) }
}
